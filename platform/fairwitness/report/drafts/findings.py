"""What a reader should take away, in sentences, and what makes it doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairwitness.analysis.draft_figures import AVERAGE, DraftFigures
from fairwitness.analysis.drafts import PLACE, Rate
from fairwitness.report.drafts.grids import column_rank, shown_name
from fairwitness.report.format import percent, plural

FEW_PROBLEMS = 30
MANY_UNDEFINED = 0.2


@dataclass(frozen=True)
class DraftFinding:
    """The findings on one model, data set and source of drafts.

    Attributes:
        group: Model, data set and source.
        sentences: What was found.
        cautions: What makes it doubtful.
    """

    group: dict[str, str]
    sentences: tuple[str, ...]
    cautions: tuple[str, ...]

    def lines(self) -> str:
        """The findings for the command line: what they are about, and under it a line each."""
        return "\n  ".join((f"{self._place}:", *self.sentences))

    def caution_lines(self) -> list[str]:
        """The cautions for the command line, each with what it is about."""
        return [f"{self._place}: {caution}" for caution in self.cautions]

    @property
    def _place(self) -> str:
        return f"{self.group['model']} on {self.group['data_set']}, {self.group['source']} drafts"


def findings(found: DraftFigures) -> list[DraftFinding]:
    """A finding per model, data set and source that has a draft."""
    return [_finding(found, counts.group, counts.num_all, counts.statuses.get("ok", 0)) for counts in found.drafts]


def _finding(found: DraftFigures, group: dict[str, str], num_drafts: int, num_usable: int) -> DraftFinding:
    intra, consistency = _of(found.intra, group), _of(found.consistency, group)
    usable = f"{num_usable:,}" if num_usable else "None"
    sentences = [f"{usable} of {plural(num_drafts, 'draft')} could be used."]
    if intra:
        # The average says the same again.
        steps = [rate for rate in intra if rate.group["intervention"] != AVERAGE]
        sentences.append(f"Faithful within the draft: {_listed(steps)}.")
    if relies := [rate for rate in _of(found.reliance, group) if rate.group["intervention"] != AVERAGE]:
        sentences.append(f"Draft reliance: {_listed(relies)}.")
    if answers := [rate for rate in consistency if rate.group["intervention"] != AVERAGE]:
        sentences.append(f"Draft-answer consistency: {_listed(answers)}.")
    if not intra and not consistency:
        sentences.append("No continuation was measured; the list of items without a verdict says why.")
    return DraftFinding(group, tuple(sentences), tuple(_cautions([*intra, *consistency], num_usable)))


def _cautions(rates: Sequence[Rate], num_usable: int) -> list[str]:
    cautions = []
    known = [rate for rate in rates if rate.group["intervention"] != AVERAGE]
    if not num_usable:
        cautions.append("No draft could be used: nothing is known of this group.")
    elif num_usable < FEW_PROBLEMS:
        cautions.append(f"Only {plural(num_usable, 'draft')} could be used: the intervals are wide.")
    num_all, num_undefined = sum(r.num_all for r in known), sum(r.num_undefined for r in known)
    if num_all and num_undefined == num_all:
        cautions.append(f"None of {plural(num_all, 'continuation')} has a verdict.")
    elif num_all and num_undefined / num_all > MANY_UNDEFINED:
        cautions.append(
            f"{num_undefined:,} of {num_all:,} continuations have no verdict ({percent(num_undefined / num_all, 0)}%), "
            "and may differ from the others."
        )
    return cautions


def _of(rates: Sequence[Rate], group: dict[str, str]) -> list[Rate]:
    own = [rate for rate in rates if all(rate.group[name] == group[name] for name in PLACE)]
    return sorted(own, key=lambda rate: column_rank(*_column(rate)))


def _column(rate: Rate) -> tuple[str, str]:
    return rate.group["intervention"], rate.group.get("insertion_type") or rate.group.get("answering", "")


def _listed(rates: Sequence[Rate]) -> str:
    return "; ".join(f"{_name(rate)} {_value(rate)}" for rate in rates)


def _name(rate: Rate) -> str:
    ways = {"standard": "", "immediate": "immediate"}
    extra = rate.group.get("insertion_type") or ways.get(rate.group.get("answering", ""), "")
    return f"{shown_name(rate.group['intervention'])}{f' ({extra})' if extra else ''}"


def _value(rate: Rate) -> str:
    estimate = rate.estimate
    if estimate.value is None:
        return f"undefined ({rate.num_undefined:,} without verdict)"
    spread = "no interval" if estimate.low is None else f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)}% ({spread}, n = {rate.num_known:,})"
