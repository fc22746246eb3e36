"""Items on their way: drawn lazily, handed out, put back when a worker dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Ticket:
    """One item and what has happened to it.

    Attributes:
        index: Position in the iterable.
        item: The item.
        num_attempts: How often it was handed to a worker.
        num_deaths: How many workers died while they held it.
        is_alone: Whether a worker may hold no other item beside it: one of those that a dead worker held. Which of them
            was to blame is not known (the answer of a finished one may have been lost), so each is tried alone.
        handed_at_s: Clock at the last hand-out.
    """

    index: int
    item: Any
    num_attempts: int = 0
    num_deaths: int = 0
    is_alone: bool = False
    handed_at_s: float = 0.0


class Feed:
    """Draws from an iterable so that at most `bound` items are open, that is waiting or with a worker."""

    def __init__(self, items: Iterable[Any], bound: int) -> None:
        self._items: Iterator[tuple[int, Any]] = enumerate(items)
        self._bound = bound
        self._waiting: deque[Ticket] = deque()
        self._num_out = 0
        self.is_exhausted = False

    @property
    def num_waiting(self) -> int:
        """Items drawn that no worker has."""
        return len(self._waiting)

    @property
    def is_done(self) -> bool:
        """Whether every item has been drawn and settled."""
        return self.is_exhausted and not self._waiting and not self._num_out

    def draw(self) -> bool:
        """Draws one item, if the bound allows; says whether there was one."""
        if self.is_exhausted or len(self._waiting) + self._num_out >= self._bound:
            return False
        for index, item in self._items:
            self._waiting.append(Ticket(index, item))
            return True
        self.is_exhausted = True
        return False

    @property
    def is_next_alone(self) -> bool:
        """Whether the item that goes next needs a worker without other items."""
        return bool(self._waiting) and self._waiting[0].is_alone

    def take(self, now_s: float) -> Ticket:
        """Hands out the ticket that waits longest."""
        ticket = self._waiting.popleft()
        ticket.num_attempts += 1
        ticket.handed_at_s = now_s
        self._num_out += 1
        return ticket

    def put_back(self, ticket: Ticket) -> None:
        """Returns a ticket whose worker died; it goes next, and alone."""
        ticket.is_alone = True
        self._num_out -= 1
        self._waiting.appendleft(ticket)

    def settle(self) -> None:
        """Counts one ticket that was handed out as finished."""
        self._num_out -= 1
