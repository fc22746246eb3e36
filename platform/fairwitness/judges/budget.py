"""What replies cost, and how much may still be spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

MESSAGE_OVERHEAD_TOKENS = 64
"""Allowance for what an endpoint puts around the messages."""


class Prices(NamedTuple):
    """Prices per million tokens, in one currency."""

    prompt: float
    completion: float

    def cost(self, num_prompt_tokens: int, num_completion_tokens: int) -> float:
        """Price of one reply."""
        return (self.prompt * num_prompt_tokens + self.completion * num_completion_tokens) / 1e6

    def bound(self, text: str, max_tokens: int) -> float:
        """Most that a reply to `text` can cost: a token of text has at least one byte."""
        return self.cost(len(text.encode()) + MESSAGE_OVERHEAD_TOKENS, max_tokens)


@dataclass
class Budget:
    """Spent so far, and set aside for requests under way. The sum never exceeds the limit.

    Attributes:
        limit: Most that may be spent; None for no limit.
        spent: Cost of the replies so far.
        reserved: Bounds of the requests under way.
        is_exhausted: Whether a request was turned down; from then on all are.
    """

    limit: float | None
    spent: float = 0.0
    reserved: float = 0.0
    is_exhausted: bool = False

    def ask(self, bound: float) -> Literal["go", "wait", "stop"]:
        """Sets `bound` aside and says `go`; `wait` where requests under way may leave enough, else `stop`."""
        if self.is_exhausted:
            return "stop"
        if self.limit is None or self.spent + self.reserved + bound <= self.limit:
            self.reserved += bound
            return "go"
        if self.spent + bound <= self.limit and self.reserved > 0:
            return "wait"
        self.is_exhausted = True
        return "stop"

    def settle(self, bound: float, cost: float) -> None:
        """Replaces what was set aside by what the reply cost."""
        self.reserved = max(0.0, self.reserved - bound)
        self.spent += cost

    def refusal(self) -> str:
        """Why a prompt was not sent."""
        return (
            f"not asked: max_cost {self.limit:g} would be exceeded ({self.spent:.4g} spent); raise max_cost and start "
            "the job again"
        )
