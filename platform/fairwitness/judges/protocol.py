"""What a chat model promises, whatever runs it: an endpoint, a local model on the pool, or rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class ChatPrompt:
    """One request: instructions (none where empty) and the user's text."""

    user: str
    system: str = ""


@dataclass(frozen=True)
class ChatReply:
    """What came back for one prompt.

    Attributes:
        text: The reply; None where there is an error.
        error: Why there is none, in one line.
        num_prompt_tokens: Tokens sent; None where the model does not count them.
        num_completion_tokens: Tokens received; None where the model does not count them.
        cost: Price in the currency of the configured prices; 0 from the cache or without prices.
        from_cache: Whether no request was made.
        is_cut: Whether the reply ended because it reached `max_tokens`.
    """

    text: str | None
    error: str | None = None
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    cost: float = 0.0
    from_cache: bool = False
    is_cut: bool = False


class Placed(NamedTuple):
    """A reply and the position of its prompt."""

    position: int
    reply: ChatReply


class ChatModel(Protocol):
    """Answers prompts, many at a time."""

    @property
    def name(self) -> str:
        """For rows and reports."""

    @property
    def key(self) -> str:
        """Hash of everything that a reply depends on beside the prompt."""

    def replies(self, prompts: Sequence[ChatPrompt], *, max_tokens: int) -> Iterator[Placed]:
        """One reply per prompt, as they come; each exactly once. A failed request is a reply with an error.

        Raises:
            ConfigError: The model cannot be used at all, for example without a key.
        """
