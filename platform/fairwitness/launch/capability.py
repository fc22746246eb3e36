"""`jobs/fur_capability.py`: general capability of a finished sweep, before and after unlearning."""

from __future__ import annotations

from functools import partial

from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job, make_report

from fairwitness.followups.capability.config import FurCapabilityConfig
from fairwitness.followups.capability.job import CapabilityResult, capability_dry_run, run_capability
from fairwitness.report.followups import capability_lines


def _findings(result: CapabilityResult) -> list[str]:
    reasons = (f"{label}: not measured. {reason}" for label, reason in result.reasons.items())
    return [*capability_lines(result.cells), *reasons]


fur_capability = Job(
    help="Measures whether unlearning a reasoning step costs the model its general abilities.",
    config=FurCapabilityConfig,
    run=partial(run_capability, loaders=LOADERS, report=make_report),
    counts="capability: {ok} steps ok, {skipped} skipped, {failed} failed; refused records: {refused}",
    if_failed="some steps failed; the table `capability` names them, and the same command tries them again",
    findings=_findings,
    dry_run=partial(capability_dry_run, loaders=LOADERS),
    dry_run_help="Say what would be run, and what it costs.",
)
"""Exit code 3: no rate is feasible for any model and data set."""
