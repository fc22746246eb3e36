"""Where trials in other processes leave their requests, and where the driver leaves the replies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any


class Mailbox:
    """Holds requests until they are taken and trials until they are answered. Runs as an asynchronous actor.

    Only plain values pass through it, so that a trial needs nothing but Ray.
    """

    def __init__(self) -> None:
        """Makes an empty one."""
        self._numbers = itertools.count()
        self._letters: dict[int, tuple[dict[str, Any], int]] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._has_letters = asyncio.Event()
        self._closed: str | None = None

    async def ask(self, settings: dict[str, Any], turn: int) -> dict[str, Any]:
        """Leaves a request and waits for its reply.

        Raises:
            RuntimeError: The mailbox is closed.
        """
        if self._closed is not None:
            raise RuntimeError(self._closed)
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._letters[number] = (settings, turn)
        self._has_letters.set()
        return await self._waiting[number]

    async def take(self, timeout_s: float) -> dict[int, tuple[dict[str, Any], int]]:
        """Takes all requests that are there, by number; waits for the first one, but not longer than the time given."""
        try:
            await asyncio.wait_for(self._has_letters.wait(), timeout_s)
        except TimeoutError:
            return {}
        taken, self._letters = self._letters, {}
        self._has_letters.clear()
        return taken

    async def reply(self, replies: Mapping[int, dict[str, Any]]) -> None:
        """Answers requests that were taken."""
        for number, reply in replies.items():
            future = self._waiting.pop(number)
            if not future.done():
                future.set_result(reply)

    async def close(self, reason: str) -> None:
        """Sends every trial that waits, and every one that comes, away."""
        self._closed = reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeError(reason))
        self._waiting.clear()
        self._letters.clear()
