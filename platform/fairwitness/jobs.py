"""Every job by its name: the one place that knows them all. Nothing is imported before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairwitness.config import Config


@dataclass(frozen=True)
class Job:
    """A job: what a user starts.

    To add one, add an entry to `JOBS`; a job of your own needs none, see docs/guides/extending.md.

    Attributes:
        name: Its name in the table `runs`, and of its script in jobs/.
        command: `fairwitness <command>` starts it.
        help: What it does, in a sentence.
        config: Its configuration class, as `module:name` or the class itself.
        measure: Its measure: the class, or a function that makes it from a configuration and `Supplies`.
        report: Makes the report of a finished measure, or of a run where it is given a path.
        counts: Line with the number of items: ok, skipped, failed, refused.
        if_failed: Line for when items failed.
        example: Name of an example of its configuration.
    """

    name: str
    command: str
    help: str
    config: str | type[Config]
    measure: str | Callable[..., Any]
    report: str | Callable[..., Any]
    counts: str
    if_failed: str
    example: str

    @property
    def config_class(self) -> type[Config]:
        """The configuration class."""
        found: type[Config] = resolve(self.config)
        return found


def resolve(place: Any) -> Any:
    """What stands at `module:name`; anything but a text is returned as it is."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            "fur_sweep",
            "sweep",
            "Measures which reasoning steps of a model are parametrically faithful.",
            config="fairwitness.fur.config:FurSweepConfig",
            measure="fairwitness.fur.sweep:FurSweep",
            report="fairwitness.report.jobs:sweep_report",
            counts="tasks: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
            if_failed="some tasks failed; the report names them, and the same command tries them again",
            example="demo",
        ),
        Job(
            "lr_search",
            "search",
            "Finds the rate of highest efficacy among those that keep specificity.",
            config="fairwitness.fur.search.config:LrSearchConfig",
            measure="fairwitness.fur.search.job:LrSearch",
            report="fairwitness.report.jobs:search_report",
            counts="tasks: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
            if_failed="some tasks failed; the report names them, and the same command tries them again",
            example="lr_search",
        ),
        Job(
            "draft_faithfulness",
            "drafts",
            "Measures whether drafts follow their own steps, and answers their drafts.",
            config="fairwitness.drafts.config:DraftFaithfulnessConfig",
            measure="fairwitness.drafts.measure:DraftFaithfulness",
            report="fairwitness.report.jobs:drafts_job_report",
            counts="continuations and drafts: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
            if_failed="some items failed; the report names them, and the same command tries them again",
            example="drafts_thinker",
        ),
        Job(
            "fur_judge",
            "judge",
            "Asks whether CoTs before and after unlearning argue for the same answer.",
            config="fairwitness.followups.config:FurJudgeConfig",
            measure="fairwitness.followups.judging.measure:FurJudge",
            report="fairwitness.report.jobs:judge_report",
            counts="judgements: {ok} ok, {skipped} skipped, {failed} failed",
            if_failed="some judgements failed; the report says why, and the same command asks for them again",
            example="judge_rules",
        ),
        Job(
            "fur_baselines",
            "baselines",
            "Measures the answers after changed chains of thought, and CC-SHAP, beside FUR.",
            config="fairwitness.followups.config:FurBaselinesConfig",
            measure="fairwitness.followups.baselines.measure:FurBaselines",
            report="fairwitness.report.jobs:baselines_report",
            counts="measurements: {ok} ok, {skipped} skipped, {failed} failed",
            if_failed="some measurements failed; the same command tries them again",
            example="baselines",
        ),
        Job(
            "fur_capability",
            "capability",
            "Measures whether unlearning a reasoning step costs the model its general abilities.",
            config="fairwitness.followups.config:FurCapabilityConfig",
            measure="fairwitness.followups.capability.measure:FurCapability",
            report="fairwitness.report.jobs:capability_report",
            counts="capability: {ok} steps ok, {skipped} skipped, {failed} failed; refused records: {refused}",
            if_failed="some steps failed; the table `capability` names them, and the same command tries them again",
            example="capability",
        ),
    )
}
"""Every job by its name."""
