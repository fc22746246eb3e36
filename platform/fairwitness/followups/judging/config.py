"""Settings of the judging job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.experiment.config import FollowConfig
from fairwitness.fur.config import Rate
from fairwitness.judges.config import JudgeConfig


class FurJudgeConfig(FollowConfig):
    """Judges the CoTs that a sweep's models wrote after unlearning."""

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
