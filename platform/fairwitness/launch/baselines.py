"""`jobs/fur_baselines.py`: other measures of faithfulness on a finished sweep."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job, make_report

from fairwitness.experiment.job import Report
from fairwitness.followups.baselines.config import FurBaselinesConfig
from fairwitness.followups.baselines.job import run_baselines
from fairwitness.followups.baselines.writers import Rule
from fairwitness.organisms.rewrites import rewrite
from fairwitness.organisms.shipped import ORGANISM
from fairwitness.records.code import code_revision
from fairwitness.report.followups import baseline_lines

RULES: Mapping[str, Rule] = {ORGANISM: Rule(ORGANISM, code_revision("fairwitness.organisms.rewrites"), rewrite)}
"""Rules that write mistakes and paraphrases for a made-up world."""


def _report(run_path: Path) -> Report:
    return make_report(run_path)._replace(findings=baseline_lines(run_path), cautions=())


fur_baselines = Job(
    help="Measures the answers after changed chains of thought, and CC-SHAP, beside FUR.",
    config=FurBaselinesConfig,
    run=partial(run_baselines, loaders=LOADERS, rules=RULES, report=_report),
    counts="measurements: {ok} ok, {skipped} skipped, {failed} failed",
    if_failed="some measurements failed; the same command tries them again",
    examples="jobs/configs/baselines.yaml",
)
