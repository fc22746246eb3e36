"""Makes the report of a measurement of drafts: report.html and csv/*.csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairwitness.records.run_dir import RunDirectory
from fairwitness.report.drafts.choose import MAX_ITEMS
from fairwitness.report.drafts.data import load_draft_run
from fairwitness.report.drafts.findings import findings
from fairwitness.report.drafts.frames import frames
from fairwitness.report.drafts.items import draft_views
from fairwitness.report.drafts.measured import measure
from fairwitness.report.drafts.page import render
from fairwitness.report.files import write_files


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
    run = load_draft_run(RunDirectory.at(run_dir))
    found = measure(run)
    told = findings(found)
    tables = frames(run, found)
    page = render(run, found, told, draft_views(run, max_items=max_items), tables)
    written = write_files(run_dir, page, tables)
    return DraftReportPaths(
        html=written.html,
        csv=written.csv,
        findings=tuple(one.lines() for one in told),
        cautions=tuple(line for one in told for line in one.caution_lines()),
    )
