"""Makes the report of a measurement of drafts: report.html and csv/*.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from fairwitness.analysis.draft_figures import AVERAGE, DraftFigures, DraftRun
from fairwitness.analysis.drafts import OUTCOMES, PLACE, Rate
from fairwitness.analysis.frames import Results
from fairwitness.report.drafts import grids
from fairwitness.report.drafts.figures import behaviour_figures, position_figures
from fairwitness.report.drafts.grids import column_rank, frames, shown_name
from fairwitness.report.drafts.items import MAX_ITEMS, RULE, DraftView, ItemView, draft_views
from fairwitness.report.files import (
    ReportPaths,
    environment,
    page_parts,
    write_files,
)
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


FILTERS = {
    "model": "Model",
    "data_set": "Data set",
    "source": "Drafts",
    "intervention": "Intervention",
    "insertion_type": "Step",
    "position": "Position",
    "behaviour": "Behaviour",
    "outcome": "Verdict",
}
_ALWAYS = ("model", "intervention", "behaviour", "outcome")


def render(
    run: DraftRun, found: DraftFigures, told: Sequence[DraftFinding], views: Sequence[DraftView], files: Iterable[str]
) -> str:
    """The whole page. Equal arguments give equal text: the only times in it are the run's own.

    Args:
        run: The run.
        found: Its figures.
        told: Its findings.
        views: The drafts shown in full.
        files: Names of the tables beside the page.
    """
    items = [item for view in views for item in view.items]
    template = environment().get_template("drafts.html.j2")
    return template.render(
        run=run,
        found=found,
        findings=told,
        views=views,
        num_shown=len(items),
        rule=RULE,
        filters=_filters(items),
        filter_values=filter_values,
        grids=_grids(found),
        sources=grids.sources_grid(found.sources),
        agreement=grids.agreement_grid(found.agreements) if found.agreements else None,
        position_figures=position_figures(found.figure_4),
        behaviour_figures=behaviour_figures(found.corrects),
        outcomes=OUTCOMES,
        outcome_rows=sorted(found.outcomes.to_dict("records"), key=_outcome_rank),
        **page_parts(run.config, _losses(found.lost), styles=["report.css", "drafts.css"], script="drafts.js"),
        shown_name=grids.shown_name,
        files=sorted(files),
        svg=Markup,
    )


def filter_values(item: ItemView) -> dict[str, str]:
    """The values of an item that the filters look at."""
    own = {"behaviour": item.behaviour, "outcome": item.outcome}
    return {name: own[name] if name in own else item.text(name) for name in FILTERS}


def _filters(items: Sequence[ItemView]) -> list[tuple[str, str, list[str]]]:
    values = [filter_values(item) for item in items]
    order = {name: number for number, name in enumerate(OUTCOMES)}
    options = {
        name: sorted({one[name] for one in values if one[name]}, key=lambda value: (order.get(value, 0), value))
        for name in FILTERS
    }
    return [(name, FILTERS[name], found) for name, found in options.items() if len(found) > 1 or name in _ALWAYS]


def _outcome_rank(row: Mapping[Any, Any]) -> tuple[list[str], list[tuple[int, str]]]:
    columns = grids.column_rank(row["intervention"], row["insertion_type"] or row["answering"])
    return [str(row[name]) for name in PLACE], columns


def _grids(found: DraftFigures) -> dict[str, Any]:
    return {
        "table_1": grids.table_1(found) if found.intra else None,
        "table_1_detail": grids.table_1_detail(found) if found.intra else None,
        "table_3": grids.by_conclusion(found.reliance) if found.reliance else None,
        "table_4": grids.table_4(found.consistency) if found.consistency else None,
        "table_6": grids.by_conclusion(found.tokens, form=grids.whole) if found.tokens else None,
    }


def _losses(lost: pd.DataFrame) -> pd.DataFrame:
    """The same items as `loss_groups` wants them: what was inserted where is said with the source."""
    names = ("source", "intervention", "insertion_type", "position", "answering")
    shown = [
        " · ".join(grids.shown_name(str(row[name])) for name in names if isinstance(row[name], str))
        for row in lost.to_dict("records")
    ]
    columns = ("table", "status", "reason", "data_set", "problem_id", "cot_step_index", "lora_rank", "lr")
    return lost.assign(source=shown).reindex(columns=[*columns, "source"])


def build_draft_report(run_dir: Path, *, max_items: int = MAX_ITEMS) -> ReportPaths:
    """Makes the report from what is stored, replacing an earlier one. The same store gives the same bytes.

    Args:
        run_dir: A run directory. The job may still be running, or have been interrupted.
        max_items: Most continuations that the page shows in full; see `chosen`. The tables hold all.

    Raises:
        StoreError: There is no run, the store cannot be read, or the report cannot be written.
    """
    run_dir = Path(run_dir)
    results = Results(run_dir)
    run, found = results.draft_run, results.draft_figures
    told = findings(found)
    tables = frames(results)
    page = render(run, found, told, draft_views(run, max_items=max_items), tables)
    return replace(
        write_files(run_dir, page, tables),
        findings=tuple(one.lines() for one in told),
        cautions=tuple(line for one in told for line in one.caution_lines()),
    )
