"""What all baselines have in common: the key and the row of a measurement. Pure: records in, dicts out."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from fairwitness.records.keys import key_of

if TYPE_CHECKING:
    from fairwitness.chains.cots import CotRecord
    from fairwitness.fur.study import FurStudy

Row = dict[str, Any]


@dataclass(frozen=True)
class NotAltered:
    """Columns of a place where a baseline has nothing to answer after, and why.

    Attributes:
        cot_step_index: The step; None for the CoT as a whole.
        status: `skipped` or `failed`.
        reason: Why.
        changed_text: The text that cannot be used.
        source: Where it is from.
    """

    cot_step_index: int | None
    status: str
    reason: str
    changed_text: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Place:
    """What a baseline measures at one place.

    Attributes:
        study: The study.
        baseline: Name of the baseline.
        baseline_key: Hash of its settings, of where its texts are from, and of the code.
        record: The problem and its CoT.
        name: The step by its index, the CoT as a whole (None), or a name for one row that is about neither.
    """

    study: FurStudy
    baseline: str
    baseline_key: str
    record: CotRecord
    name: int | str | None

    @property
    def key(self) -> str:
        """Key of the measurement."""
        return key_of(baseline=self.baseline_key, cot=self.study.cot_key(self.record.problem), place=self.name)

    def row(self, **found: Any) -> Row:
        """Row of the measurement; `found` is what was found, by column."""
        problem, given = self.record.problem, self.record.given_cot
        return {
            "key": self.key,
            "baseline": self.baseline,
            "baseline_key": self.baseline_key,
            **self.study.columns,
            "cot_key": self.study.cot_key(problem),
            "problem_id": problem.problem_id,
            "problem_key": self.study.data.problem_key(problem),
            "cot_step_index": self.name if isinstance(self.name, int) else None,
            "base_letter": None if given is None else ascii_uppercase[given.index],
            "base_probs": None if given is None else list(given.probs),
            **found,
        }
