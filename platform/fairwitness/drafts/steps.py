"""The steps of a draft, their labels by rules, its exploitation blocks, and the places for inserted texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fairwitness.drafts.config import POSITIONS, Position
from fairwitness.problems.problem import Problem
from fairwitness.text.alignment import align_tokens, tokens_of_steps
from fairwitness.text.segmentation import Span, segment

Label = Literal["continue", "backtrack"]


@dataclass(frozen=True)
class DraftStep:
    """One step of a draft.

    Attributes:
        start: First character in the draft.
        end: One past its last character; the next step begins there.
        label: `continue` (forward reasoning) or `backtrack` (self-reflection or another approach).
    """

    start: int
    end: int
    label: Label


@dataclass(frozen=True)
class Place:
    """Where a text is inserted.

    Attributes:
        position: Which of the three positions it is.
        cot_step_index: The step after which the text is inserted.
        block_index: The exploitation block that this step ends; None where positions are counted in steps.
    """

    position: Position
    cot_step_index: int
    block_index: int | None


def blocks(steps: Sequence[DraftStep]) -> list[range]:
    """Exploitation blocks: a backtrack step and the continue steps up to the next backtrack step.

    Steps before the first backtrack step belong to no block.

    Returns:
        For every block the indices of its steps.
    """
    starts = [index for index, step in enumerate(steps) if step.label == "backtrack"]
    return [range(a, b) for a, b in pairwise([*starts, len(steps)])]


def places(steps: Sequence[DraftStep]) -> list[Place]:
    """The places of the three positions: the ends of the first, the middle and the last block.

    A draft of fewer than three blocks has no three block ends. There the positions are counted in steps: after the
    first, the middle and the last one. A draft of fewer than three steps gives as many places as steps, the earlier
    positions first; an empty one gives none.
    """
    found = blocks(steps)
    if len(found) >= len(POSITIONS):
        chosen = (0, (len(found) - 1) // 2, len(found) - 1)
        return [Place(p, found[b][-1], b) for p, b in zip(POSITIONS, chosen, strict=True)]
    last = len(steps) - 1
    if last < 0:
        return []
    indices = list(dict.fromkeys((0, last // 2, last))) if last != 1 else [0, 1]
    names = POSITIONS if len(indices) == len(POSITIONS) else (("initial",), ("initial", "end"))[len(indices) - 1]
    return [Place(p, index, None) for p, index in zip(names, indices, strict=True)]


_OPENING = re.compile(
    r"""^[\s"'*_>\-–—(.…]*(?:(?:so|and|oh|ah|well|okay|ok|hmm+|um+|yeah|right)\b[\s,.…!]*)*(?:
    (?:but\s+)?(?:wait|hold\s+on|hang\s+on|no[,.!…\s]+(?:wait|that|this|it|the|i)\b|nope)
  | (?:but\s+)?(?:alternatively|on\s+(?:second\s+thought|the\s+other\s+hand)|then\s+again)\b
  | (?:but\s+)?(?:actually|in\s+fact)\b[\s,]
  | (?:but\s+)?(?:maybe|perhaps)\s+i\b
  | (?:but\s+)?(?:let\s+(?:me|us)|let's|i\s+(?:should|need\s+to|want\s+to|must|have\s+to)|i'll|i\s+will)\s+
      (?:also\s+|just\s+|quickly\s+|now\s+)?
      (?:double[\s-]?check|re-?check|check\s+(?:again|that|this|if|whether|my|the)|verify|re-?consider|re-?think|re-?examine
       |re-?read|re-?evaluate|re-?visit|go\s+back|start\s+over|try\s+(?:another|a\s+different|again|an\s+alternative)
       |look\s+at\s+(?:this|it)\s+(?:again|differently|another\s+way)
       |think\s+(?:again|differently|about\s+this\s+differently)|backtrack)
  | (?:i|we)\s+(?:(?:may|might|must)\s+(?:have\s+made|be)|made|was|were|am\s+probably)\s+
      (?:a\s+mistake|an\s+error|wrong|mistaken|confus)
  | (?:that|this|it|which)\s*(?:'s|\s+is|\s+was|\s+can't|\s+cannot|\s+can\s+not|\s+doesn't|\s+does\s+not|\s+isn't)\s+
      (?:not\s+)?(?:right|correct|wrong|a\s+mistake|mistaken|be\s+right|seem\s+right|make\s+sense|add\s+up|match)
  | (?:another|a\s+different|an\s+alternative)\s+(?:way|approach|method|thought|possibility|idea|angle|option)\b
  | what\s+if\b
  | (?:but\s+)?(?:is|am|did|was|are)\s+(?:that|this|i|it|we)\b[^.!]*\?
  | (?:等等|等一下|不对|不\W|或者|另外|重新|再检查|待って|いや[、,])
  | (?:но\s+)?(?:подожди\w*|погоди\w*|постой\w*|стоп|или\s+же|\w\s+другой\s+стороны|проверим|перепровер\w+)\b
  | (?:لكن\s+)?(?:انتظر|مهلا|لحظة|من\s+ناحية\s+أخرى|لنتحقق|دعني\s+أتحقق)\b
  )""",
    re.IGNORECASE | re.VERBOSE,
)


def label_of(sentence: str) -> Label:
    """`backtrack` where the sentence opens by turning back or to another approach, else `continue`."""
    return "backtrack" if _OPENING.match(sentence) else "continue"


def decompose(draft: str) -> list[DraftStep]:
    """The steps of a draft: its sentences, labelled. They tile the draft; an empty draft has none."""
    return [DraftStep(span.start, span.end, label_of(draft[span.start : span.end])) for span in segment(draft)]


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
