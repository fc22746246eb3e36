"""Settings of the judging job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.config import Config
from fairwitness.fleet.config import PoolConfig
from fairwitness.fur.config import Rate
from fairwitness.judges.config import JudgeConfig
from fairwitness.records.tracker import TrackingConfig


class FurJudgeConfig(Config):
    """Judges the CoTs that a sweep's models wrote after unlearning."""

    run: str = Field(min_length=1)
    """Directory of the sweep's run, for example results/demo; the sweep needs `measure.cot_after: true`. The rows go
    into the same store."""
    judge: JudgeConfig
    """Who judges. Several judges of one run are several calls of the job."""
    lr: Literal["selected"] | Rate = "selected"
    """Rate at which the CoTs were written: the one that the learning-rate rule selects, or a number."""
    ask: Literal["agreeing", "changed"] = "agreeing"
    """`agreeing`: all steps after whose unlearning direct and CoT answers agree; `changed`: of these the ones whose
    direct answer changed, as in the paper's Table 3."""
    template: str | None = Field(None, min_length=1)
    """YAML file with a question of your own in place of the shipped one; a rules judge has none."""
    max_tokens: int = Field(300, ge=1)
    """Longest reply, in tokens."""
    pool: PoolConfig | None = None
    """The workers of a local judge; by default those of the sweep."""
    tracking: TrackingConfig | None = None
    """Where MLflow is; by default as in the sweep."""
