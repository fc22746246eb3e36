"""`jobs/fur_judge.py`: judges the CoTs that a sweep's models wrote after unlearning."""

from __future__ import annotations

from functools import partial

from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job, make_report

from fairwitness.followups.judging.config import FurJudgeConfig
from fairwitness.followups.judging.job import JudgeResult, run_judge
from fairwitness.report.followups import sentence


def _findings(result: JudgeResult) -> list[str]:
    return [*map(sentence, result.cells), *result.notes]


fur_judge = Job(
    help="Asks whether CoTs before and after unlearning argue for the same answer.",
    config=FurJudgeConfig,
    run=partial(run_judge, loaders=LOADERS, report=make_report),
    counts="judgements: {ok} ok, {skipped} skipped, {failed} failed",
    if_failed="some judgements failed; the report says why, and the same command asks for them again",
    findings=_findings,
)
"""Exit code 3: `lr: selected`, and no rate is feasible."""
