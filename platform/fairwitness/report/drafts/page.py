"""Makes the report of a measurement of drafts: report.html and csv/*.csv."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from fairwitness.analysis.draft_figures import DraftFigures, DraftRun
from fairwitness.analysis.drafts import OUTCOMES, PLACE
from fairwitness.analysis.frames import Results
from fairwitness.report.drafts import grids
from fairwitness.report.drafts.figures import behaviour_figures, position_figures
from fairwitness.report.drafts.findings import DraftFinding, findings
from fairwitness.report.drafts.grids import frames
from fairwitness.report.drafts.items import MAX_ITEMS, RULE, DraftView, ItemView, draft_views
from fairwitness.report.files import asset, environment, write_files
from fairwitness.report.losses import MAX_GROUPS, MAX_NAMED, loss_groups

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
    script = asset("drafts.js")
    items = [item for view in views for item in view.items]
    lost = loss_groups(_losses(found.lost))
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
        groups=lost[:MAX_GROUPS],
        num_more_groups=max(0, len(lost) - MAX_GROUPS),
        max_items=MAX_NAMED,
        shown_name=grids.shown_name,
        files=sorted(files),
        config_text=json.dumps(run.config, indent=2, ensure_ascii=False),
        svg=Markup,
        css=Markup(asset("report.css") + asset("drafts.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
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


@dataclass(frozen=True)
class DraftReportPaths:
    """The files of a report: the page, the tables by name, what to take away and what makes it doubtful."""

    html: Path
    csv: Mapping[str, Path]
    findings: tuple[str, ...]
    cautions: tuple[str, ...]


def build_draft_report(run_dir: Path, *, max_items: int = MAX_ITEMS) -> DraftReportPaths:
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
    written = write_files(run_dir, page, tables)
    return DraftReportPaths(
        html=written.html,
        csv=written.csv,
        findings=tuple(one.lines() for one in told),
        cautions=tuple(line for one in told for line in one.caution_lines()),
    )
