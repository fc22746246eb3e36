"""What a baseline makes of a CoT: a changed CoT to answer after, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from fairwitness.fur.tasks import Ids


@dataclass(frozen=True)
class Altered:
    """A changed CoT.

    Attributes:
        cot_step_index: The step that is changed, or the first one left out; None where the whole CoT is replaced.
        ids: The changed CoT, or its beginning. Ids of the model's own steps are those that it generated.
        continues: Whether the model goes on from `ids` before it answers.
        changed_text: The step as changed, or what stands for the CoT.
        source: Where that text is from; None where it is nobody's.
    """

    cot_step_index: int | None
    ids: Ids
    continues: bool = False
    changed_text: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class NotAltered:
    """Why a baseline has nothing to answer after at one place. Attributes as in `Altered`; `status` as in the row."""

    cot_step_index: int | None
    status: str
    reason: str
    changed_text: str | None = None
    source: str | None = None
