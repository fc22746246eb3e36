"""Which configuration class each job in jobs/ has."""

from __future__ import annotations

from collections.abc import Mapping

from fairwitness.config import Config
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.fur.baselines.config import FurBaselinesConfig
from fairwitness.fur.capability.config import FurCapabilityConfig
from fairwitness.fur.judging.config import FurJudgeConfig
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.sweep_config import FurSweepConfig

JOB_CONFIGS: Mapping[str, type[Config]] = {
    "fur_sweep": FurSweepConfig,
    "lr_search": LrSearchConfig,
    "fur_baselines": FurBaselinesConfig,
    "fur_judge": FurJudgeConfig,
    "draft_faithfulness": DraftFaithfulnessConfig,
    "fur_capability": FurCapabilityConfig,
}
"""The configuration class of each job in jobs/."""
