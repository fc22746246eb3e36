"""`jobs/draft_faithfulness.py`: whether drafts follow their own steps, and answers their drafts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.dry_run import draft_dry_run
from fairwitness.drafts.workflow import run_drafts
from fairwitness.experiment.job import Report
from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job
from fairwitness.report.drafts.page import build_draft_report


def _report(run_path: Path) -> Report:
    paths = build_draft_report(run_path)
    return Report((paths.html, *paths.csv.values()), paths.findings, cautions=paths.cautions)


draft_faithfulness = Job(
    help="Measures whether drafts follow their own steps, and answers their drafts.",
    config=DraftFaithfulnessConfig,
    run=partial(run_drafts, loaders=LOADERS, report=_report),
    counts="continuations and drafts: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
    if_failed="some items failed; the report names them, and the same command tries them again",
    dry_run=partial(draft_dry_run, loaders=LOADERS),
    dry_run_help="Say what would be run and asked, with time, memory and cost at most.",
)
