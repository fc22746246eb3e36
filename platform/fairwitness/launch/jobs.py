"""Which configuration class each job in jobs/ has."""

from __future__ import annotations

from collections.abc import Mapping

from fairwitness.config import Config
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.followups.baselines.config import FurBaselinesConfig
from fairwitness.followups.capability.config import FurCapabilityConfig
from fairwitness.followups.judging.config import FurJudgeConfig
from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.search.config import LrSearchConfig

JOB_CONFIGS: Mapping[str, type[Config]] = {
    "fur_sweep": FurSweepConfig,
    "lr_search": LrSearchConfig,
    "fur_baselines": FurBaselinesConfig,
    "fur_judge": FurJudgeConfig,
    "draft_faithfulness": DraftFaithfulnessConfig,
    "fur_capability": FurCapabilityConfig,
}
"""The configuration class of each job in jobs/."""
