"""When a request may start."""

from __future__ import annotations

import asyncio


class Pacer:
    """Spaces the starts of requests evenly, and lets none start while the server asks for a pause."""

    def __init__(self, per_minute: float | None) -> None:
        """Allows `per_minute` starts a minute; None for no limit. To be used inside one event loop."""
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._next_s = self._held_until_s = float("-inf")

    async def turn(self) -> None:
        """Returns when a request may start."""
        loop = asyncio.get_running_loop()
        start_s = max(loop.time(), self._next_s)
        self._next_s = start_s + self._interval_s
        await asyncio.sleep(start_s - loop.time())
        while (left_s := self._held_until_s - loop.time()) > 0:
            await asyncio.sleep(left_s)

    def hold(self, seconds: float) -> None:
        """Lets no request start for this long."""
        self._held_until_s = max(self._held_until_s, asyncio.get_running_loop().time() + seconds)
