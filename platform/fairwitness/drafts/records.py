"""What is known of one draft, from the model's tokens to labelled steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairwitness.drafts.blocks import DraftStep, blocks
from fairwitness.problems.problem import Problem
from fairwitness.text.alignment import align_tokens, tokens_of_steps
from fairwitness.text.segmentation import Span

Ids = tuple[int, ...]


@dataclass(frozen=True)
class DraftRecord:
    """One draft.

    Attributes:
        problem: The problem.
        prompt_ids: Ids up to where the draft begins.
        draft_ids: Ids of the draft, tags excluded.
        text: Its text.
        finish: How it ended: `tag`, `cue`, `eos`, `length`, or `given` for one from a file; None where there is none.
        irregular: What is unusual about its tags.
        answer_text: What the model wrote after it.
        answer: The letter stated there.
        conclusion: ans(T), the letter that the draft concludes.
        conclusion_by: Who read it.
        steps: Its labelled steps.
        token_ends: For every step, how many tokens of the draft it and those before it have.
        labelled_by: Who labelled the steps.
        status: `ok`, `skipped` or `failed`.
        reason: Why it is not `ok`.
    """

    problem: Problem
    prompt_ids: Ids
    draft_ids: Ids = ()
    text: str = ""
    finish: str | None = None
    irregular: tuple[str, ...] = ()
    answer_text: str | None = None
    answer: str | None = None
    conclusion: str | None = None
    conclusion_by: str | None = None
    steps: tuple[DraftStep, ...] = ()
    token_ends: tuple[int, ...] = ()
    labelled_by: str | None = None
    status: str = "ok"
    reason: str | None = None

    @property
    def num_blocks(self) -> int:
        """Number of exploitation blocks."""
        return len(blocks(self.steps))


def step_token_ends(
    decode: Callable[[Sequence[int]], str], draft_ids: Sequence[int], steps: Sequence[DraftStep]
) -> tuple[int, ...]:
    """For every step, how many of the draft's tokens it and the steps before it have."""
    aligned = align_tokens(decode, draft_ids)
    ranges = tokens_of_steps(aligned.spans, aligned.text, [Span(step.start, step.end) for step in steps])
    return tuple(found.stop for found in ranges)
