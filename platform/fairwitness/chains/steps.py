"""The steps of a chain of thought: sentences, their tokens and content words. Token ids are sliced, not made anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairwitness.chains.config import EligibleRule
from fairwitness.chains.items import Ids
from fairwitness.text.alignment import align_tokens, content_positions, tokens_of_steps
from fairwitness.text.content_words import content_words_in
from fairwitness.text.segmentation import segment


@dataclass(frozen=True)
class StepTokens:
    """One cot_step in its context.

    Attributes:
        ids: Prompt and CoT up to the end of the step, as generated.
        start: Position in `ids` of the step's first token; the step ends with `ids`.
        words: Positions in `ids` of the tokens of each content word.
    """

    ids: Ids
    start: int
    words: tuple[Ids, ...]

    @property
    def content(self) -> Ids:
        """Positions of all content tokens."""
        return tuple(p for word in self.words for p in word)

    @property
    def positions(self) -> Ids:
        """Positions of all tokens of the step."""
        return tuple(range(self.start, len(self.ids)))


MIN_CONTENT_WORDS = 2
"""A cot_step with fewer content words is not unlearned (FUR §4.1)."""


MIN_CONTENT_TOKENS = 3
"""A cot_step with fewer content tokens is not unlearned by the published code."""


@dataclass(frozen=True)
class CotStep:
    """One step of a generated CoT.

    Attributes:
        index: Position in the CoT, 0 first.
        char_start: First character in the CoT's text.
        char_end: One past the last character.
        token_start: First token in the CoT's ids.
        token_end: One past the last token.
        word_positions: For each content word, the indices of its tokens in the CoT's ids.
        ineligible: Why the step is not unlearned, or None when it is.
    """

    index: int
    char_start: int
    char_end: int
    token_start: int
    token_end: int
    text: str
    words: tuple[str, ...]
    word_positions: tuple[Ids, ...]
    ineligible: str | None

    def tokens(self, prompt_ids: Sequence[int], cot_ids: Sequence[int]) -> StepTokens:
        """The step in its context: prompt, earlier steps, itself."""
        offset = len(prompt_ids)
        words = tuple(tuple(offset + p for p in word) for word in self.word_positions)
        return StepTokens((*prompt_ids, *cot_ids[: self.token_end]), offset + self.token_start, words)


def cot_steps(
    decode: Callable[[Sequence[int]], str], cot_ids: Sequence[int], *, eligible: EligibleRule = "content_words"
) -> list[CotStep]:
    """Cuts a generated CoT into steps, with the tokens and content words of each.

    `cot_ids` are as generated; `eligible` says which steps can be unlearned, see `RecipeConfig`.

    Returns:
        The steps in order; they cover all characters and all tokens. A content word without a token of its own is left
        out (its token belongs to the word before).

    Source: FUR §4.1, §5 (preprocessing).
    """
    text, token_spans = align_tokens(decode, cot_ids)
    spans = segment(text)
    tokens = tokens_of_steps(token_spans, text, spans)
    steps = []
    for index, (span, inside, words) in enumerate(zip(spans, tokens, content_words_in(text, spans), strict=True)):
        local = [token_spans[t] for t in inside]
        pairs = zip(words, content_positions(local, words), strict=True)
        found = [(word.text, tuple(inside.start + p for p in positions)) for word, positions in pairs if positions]
        steps.append(
            CotStep(
                index=index,
                char_start=span.start,
                char_end=span.end,
                token_start=inside.start,
                token_end=inside.stop,
                text=text[span.start : span.end],
                words=tuple(word for word, _ in found),
                word_positions=tuple(positions for _, positions in found),
                ineligible=_ineligible(inside, [positions for _, positions in found], eligible),
            )
        )
    return steps


def _ineligible(tokens: range, words: Sequence[Ids], rule: EligibleRule) -> str | None:
    if not tokens:
        return "no token of its own"
    if rule == "content_words":
        return f"fewer than {MIN_CONTENT_WORDS} content words" if len(words) < MIN_CONTENT_WORDS else None
    return f"fewer than {MIN_CONTENT_TOKENS} content tokens" if sum(map(len, words)) < MIN_CONTENT_TOKENS else None
