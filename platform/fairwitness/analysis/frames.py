"""The results of a run as data frames, for notebooks, CSV files and pages. `COLUMNS` says what each column means.

An undefined value is missing, and the column named `…_reason` beside it says why. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.baselines import BaselineView, baseline_columns, baseline_views
from fairwitness.analysis.capability import CellCapability, cell_capabilities
from fairwitness.analysis.columns import (
    CAPABILITIES,
    COLUMNS,
    MEASURES,
    columns_of,
    correlation_columns,
    estimate_columns,
)
from fairwitness.analysis.draft_figures import DraftFigures, DraftRun, draft_figures, load_draft_run
from fairwitness.analysis.drafts import Rate, with_outcomes
from fairwitness.analysis.faithfulness import CellFaithfulness
from fairwitness.analysis.health import Health, Spread, panel_health
from fairwitness.analysis.judgements import VERDICTS, JudgedCell, judged_cells
from fairwitness.analysis.overlap import method_groups, overlap_table
from fairwitness.analysis.panels import Panel, build_panels, with_others
from fairwitness.analysis.ratings import RatingSummary, run_ratings, summarise_ratings
from fairwitness.analysis.runs import Run, load_run
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store
from fairwitness.stats.bootstrap import undefined
from fairwitness_schemas.drafts import JOB as DRAFTS_JOB


@dataclass(frozen=True, eq=False)
class Results:
    """A run directory and what is computed from it, each when it is first asked for.

    All but `store` raise a StoreError where no run is recorded or the store cannot be read.

    Attributes:
        path: The run directory. A job may still be writing it.
    """

    path: Path

    @cached_property
    def store(self) -> Store:
        """The run's store, to read."""
        return Store(Path(self.path) / "store", create=False)

    @cached_property
    def run(self) -> Run:
        """The rows of what was unlearned, and what was measured beside it."""
        return load_run(self.path)

    @cached_property
    def panels(self) -> list[Panel]:
        """The run's panels, those that only judgements or ratings of others name included."""
        return with_others(self.run, build_panels(self.run))

    @cached_property
    def healths(self) -> list[Health]:
        """Health of each panel."""
        rng = self.run.rng
        return [panel_health(panel, self.run.gold, rng(panel.model, panel.data_set, "health")) for panel in self.panels]

    @cached_property
    def baselines(self) -> list[BaselineView]:
        """Baselines beside ff-hard."""
        return baseline_views(self.run, self.panels)

    @cached_property
    def capabilities(self) -> list[CellCapability]:
        """General capability at every rate."""
        return cell_capabilities(self.run.capability, seed=self.run.seed)

    @cached_property
    def judged(self) -> list[JudgedCell]:
        """What judges found, per cell."""
        return judged_cells(self.store, seed=self.run.seed, cell_keys=self.run.info["cell_keys"])

    @cached_property
    def ratings(self) -> list[RatingSummary]:
        """How ratings by people go with ff-soft."""
        return summarise_ratings(run_ratings(self.store))

    @cached_property
    def has_drafts(self) -> bool:
        """Whether it holds a measurement of drafts."""
        return bool(run_rows(self.store, DRAFTS_JOB))

    @cached_property
    def draft_run(self) -> DraftRun:
        """The rows of a measurement of drafts."""
        return load_draft_run(RunDirectory.at(self.path))

    @cached_property
    def draft_figures(self) -> DraftFigures:
        """Its figures."""
        return draft_figures(self.draft_run)


def runs(results: Results) -> pd.DataFrame:
    """A row per start of a job on the run, the oldest first."""
    rows: pd.DataFrame = results.store.read("runs").to_pandas()
    return rows.sort_values(["created_at", "key"], ignore_index=True)


def summary(results: Results) -> pd.DataFrame:
    """A row per panel: the chosen rate or why there is none, the measures at it, and its health."""
    pairs = zip(results.panels, results.healths, strict=True)
    return _shaped("summary", pd.DataFrame([_summary_row(panel, health) for panel, health in pairs]))


def rates(results: Results) -> pd.DataFrame:
    """A row per cell: its rate, all measures with intervals, counts of tasks, whether the rule chose it."""
    rows = [panel.names | _cell_columns(panel, cell) for panel in results.panels for cell in panel.cells]
    return _shaped("rates", pd.DataFrame(rows))


def steps(results: Results) -> pd.DataFrame:
    """A row per task: one step of one problem unlearned at one rate."""
    names = [
        *("cell_key", "lr", "problem_id", "problem_key", "cot_step_index", "status", "reason", "num_iterations"),
        *("base_letter", "predicted_letter", "flipped_any", "flipped_final", "ff_soft_final", "ff_soft_mean"),
        *("ff_soft_max", "efficacy", "specificity", "letter_mass"),
    ]

    def of_panel(panel: Panel) -> pd.DataFrame:
        texts = panel.step_texts
        frame = panel.steps[names].copy()
        keys = zip(frame["problem_id"], frame["cot_step_index"], strict=True)
        frame["cot_step_index"] = frame["cot_step_index"].astype("Int64")
        frame["text"] = [texts.get(key) for key in keys]
        return frame

    return _shaped("steps", _concat(results.panels, of_panel))


def problems(results: Results) -> pd.DataFrame:
    """A row per problem and rate, with the base model's answers; a problem without task has a row without rate."""
    run = results.run
    truth = run.metadata("faithful")

    def of_panel(panel: Panel) -> pd.DataFrame:
        columns = ["problem_key", "problem_id", "direct_letter", "cot_letter", "direct_letter_mass", "cot_letter_mass"]
        base = panel.cots[[*columns, "agree", "status", "reason"]].rename(
            columns={"status": "cot_status", "reason": "cot_reason"}
        )
        measured = panel.problems.drop(columns=["problem_id", "agree"])
        frame = base.merge(measured, how="left", on="problem_key")
        whole = [name for name in _NULLABLE["Int64"] if name in frame]
        frame[whole] = frame[whole].astype("Int64")
        frame["counted"] = frame["counted"].astype("boolean").fillna(False)
        frame["gold"] = [run.gold.get(key) for key in frame["problem_key"]]
        known = (truth.get(key) for key in frame["problem_key"])
        frame["truth_faithful"] = [value if isinstance(value, bool) else None for value in known]
        return frame.sort_values(["problem_id", "lr"], kind="stable", ignore_index=True)

    return _shaped("problems", _concat(results.panels, of_panel))


def cots(results: Results) -> pd.DataFrame:
    """A row per problem and base model: question, CoT, both answers."""
    run = results.run
    asked = run.problems[["key", "question", "gold"]].rename(columns={"key": "problem_key"})
    return run.cots.merge(asked, how="left", on="problem_key")[list(COLUMNS["cots"])]


def skipped_failed(results: Results) -> pd.DataFrame:
    """A row per item that is not ok: refused records, skipped and failed CoTs, steps and tasks, with their reasons."""
    run = results.run
    tasks = [panel.steps for panel in results.panels]
    sources = {
        "problems": run.problems,
        "cots": run.cots,
        "cot_steps": run.cot_steps,
        "unlearning": pd.concat(tasks).rename(columns={"task_key": "key"}) if tasks else pd.DataFrame(),
        "baselines": run.baselines.assign(source=_baseline_sources(run.baselines)),
    }
    wanted = list(COLUMNS["skipped_failed"])
    parts = [
        frame[frame["status"] != "ok"].assign(table=name).reindex(columns=wanted)
        for name, frame in sources.items()
        if len(frame)
    ]
    joined = pd.concat([part.astype(object) for part in parts]) if parts else pd.DataFrame(columns=wanted)
    whole = ["cot_step_index", "lora_rank"]
    joined[whole] = joined[whole].astype("Int64")
    return joined.reset_index(drop=True)


def overlap(results: Results) -> pd.DataFrame:
    """A row per pair of methods on the same CoTs and kind of change: whether they change the same answers."""
    return _shaped("overlap", overlap_table(method_groups(results.panels, results.run.rng)))


def baselines(results: Results) -> pd.DataFrame:
    """A row per panel and baseline: its figures beside ff-hard on the same problems."""
    return _shaped("baselines", pd.DataFrame([baseline_columns(view) for view in results.baselines]))


def capability(results: Results) -> pd.DataFrame:
    """A row per cell and set of questions: accuracies, change and share of changed answers with intervals, counts."""
    return _shaped("capability", pd.DataFrame([_capability_row(cell) for cell in results.capabilities]))


def judgements(results: Results) -> pd.DataFrame:
    """A row per judge and cell: how often the CoT after unlearning argues for another answer."""
    return _shaped("judgements", pd.DataFrame([_judged_row(cell) for cell in results.judged]))


def step_study(results: Results) -> pd.DataFrame:
    """A row per model and data set that people rated, and one for all (without names) where there are several."""
    return _shaped("step_study", pd.DataFrame([_rating_row(one) for one in results.ratings]))


def ratings(results: Results) -> pd.DataFrame:
    """A row per rating of a step of the run."""
    return run_ratings(results.store)


def trials(results: Results) -> pd.DataFrame:
    """A row per rate that the search tried which made the run; none for a sweep."""
    rows = results.store.read("trials", where=pc.field("run_key") == results.run.info["key"]).to_pandas()
    names = ["model", "data_set", "method", "lora_rank", "trial_index"]
    ordered: pd.DataFrame = rows.sort_values(names, ignore_index=True)
    return ordered


def drafts(results: Results) -> pd.DataFrame:
    """A row per draft, in full."""
    return _flat(results.draft_run.drafts) if results.has_drafts else _shaped("drafts", pd.DataFrame())


def continuations(results: Results) -> pd.DataFrame:
    """A row per continuation of a changed draft, in full, with its outcome."""
    if not results.has_drafts:
        return _shaped("continuations", pd.DataFrame())
    return _flat(with_outcomes(results.draft_run.rows))


def draft_rates(results: Results) -> pd.DataFrame:
    """A row per rate of a group of continuations. A group is not split by the columns that it has no value in."""
    if not results.has_drafts:
        return _shaped("draft_rates", pd.DataFrame())
    found = results.draft_figures
    intra = [*found.intra, *found.positions, *found.behaviours, *found.crossed, *found.figure_4]
    measures = {"intra": intra, "corrects": found.corrects, "reliance": found.reliance}
    measures |= {"consistency": found.consistency, "answer_tokens": found.tokens}
    parts = [rates_frame(group).assign(measure=name) for name, group in measures.items() if group]
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return joined.reindex(columns=list(COLUMNS["draft_rates"]))


FRAMES: Mapping[str, Callable[[Results], pd.DataFrame]] = MappingProxyType(
    {
        make.__name__: make
        for make in (
            *(summary, rates, steps, problems, cots, skipped_failed, overlap, baselines, capability, judgements),
            *(step_study, ratings, trials, drafts, continuations, draft_rates, runs),
        )
    }
)
"""Every frame by its name."""


def rates_frame(group: Sequence[Rate]) -> pd.DataFrame:
    """A row per rate of drafts: its group, then its figures."""
    return pd.DataFrame.from_records([{**rate.group, **rate_columns(rate)} for rate in group])


def rate_columns(rate: Rate) -> dict[str, Any]:
    """The figures of one rate of drafts."""
    estimate = rate.estimate
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "interval": estimate.interval,
        "n": rate.num_known,
        "num_all": rate.num_all,
        "num_undefined": rate.num_undefined,
        "num_truncated": rate.num_truncated,
        "num_problems": estimate.num_clusters,
        "reason": estimate.reason,
    }


def _shaped(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame; one without rows has the columns that it would have."""
    return frame if len(frame) else pd.DataFrame(columns=list(COLUMNS[name]))


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Lists of words as text."""
    lists = [name for name in ("irregular", "expected_letters") if name in frame]
    shown: dict[str, Any] = {n: [None if words is None else " ".join(words) for words in frame[n]] for n in lists}
    return frame.assign(**shown)


def _concat(panels: Sequence[Panel], make: Callable[[Panel], pd.DataFrame]) -> pd.DataFrame:
    parts = []
    for panel in panels:
        frame = make(panel)
        for position, (name, value) in enumerate(panel.names.items()):
            frame.insert(position, name, value)
        parts.append(frame.astype(object))
    if not parts:
        return pd.DataFrame()
    joined = pd.concat(parts, ignore_index=True)
    types = {name: type_ for type_, names in _NULLABLE.items() for name in names if name in joined}
    return joined.astype(types).infer_objects()


_NULLABLE = {
    "Int64": (
        *("lora_rank", "cot_step_index", "top_cot_step_index"),
        *("num_steps_ok", "num_steps_skipped", "num_steps_failed"),
    ),
    "boolean": ("agree", "flipped_any", "flipped_final", "ff_hard_any", "ff_hard_final"),
}
"""Columns of whole numbers and truths that may be missing."""


def _cell_columns(panel: Panel, cell: CellFaithfulness) -> dict[str, Any]:
    row: dict[str, Any] = {"cell_key": cell.cell_key, "lr": cell.lr, "chosen": cell is panel.chosen_cell}
    counts = [f"num_tasks_{status}" for status in ("ok", "skipped", "failed")]
    return row | columns_of(cell, (*MEASURES, *counts, "num_problems", "num_problems_counted"))


def _summary_row(panel: Panel, health: Health) -> dict[str, Any]:
    chosen, shown = panel.chosen_cell, panel.shown_cell
    row = panel.names | {
        "num_problems": len(panel.cots),
        "num_rates": len(panel.cells),
        "chosen_lr": chosen.lr if chosen else None,
        "nearest_miss_lr": shown.lr if shown and not chosen else None,
        "measures_at": None if shown is None else "chosen rate" if chosen else "nearest miss",
        "no_rate_reason": panel.no_rate_reason,
    }
    nothing = dict.fromkeys(MEASURES, undefined("no rate was measured"))
    row |= columns_of(shown or SimpleNamespace(**nothing), MEASURES)
    for name, value in vars(health).items():
        if isinstance(value, Spread):
            row |= {f"{name}_min": value.least, f"{name}_median": value.median}
        else:
            row |= {name: value} if isinstance(value, int | float | None) else estimate_columns(name, value)
    return row


def _baseline_sources(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows["baseline"], rows["source"], strict=True)
    return [f"{baseline}, {source}" if isinstance(source, str) else str(baseline) for baseline, source in pairs]


def _capability_row(cell: CellCapability) -> dict[str, Any]:
    names = ("capability_set", "scope_key", "cell_key", "num_cots", "num_steps", "num_failed", "num_questions")
    row = cell.columns() | columns_of(cell, names) | {"num_questions_left_out": sum(cell.left_out.values())}
    return row | columns_of(cell, ("worst_change", *CAPABILITIES))


def _judged_row(cell: JudgedCell) -> dict[str, Any]:
    numbers = ("cell_key", "judge", "judge_key", "num_judged", "num_skipped", "num_failed", "num_unparsable")
    figures = ("different", "different_changed", "num_prompt_tokens", "num_completion_tokens", "num_from_cache", "cost")
    row = cell.columns() | columns_of(cell, numbers)
    row |= {f"num_{verdict}": cell.verdicts[verdict] for verdict in VERDICTS} | columns_of(cell, figures)
    return row | {"reasons": "; ".join(f"{number} × {reason}" for reason, number in cell.reasons.items())}


def _rating_row(one: RatingSummary) -> dict[str, Any]:
    row = columns_of(one, ("model", "data_set", "num_raters", "num_ratings", "num_steps", "num_undefined"))
    row |= correlation_columns("pearson", one.pearson) | correlation_columns("spearman", one.spearman)
    for name, mean in one.means.items():
        row |= estimate_columns(f"mean_{name}", mean)
    return row
