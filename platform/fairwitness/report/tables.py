"""The report as tables: what the HTML shows, unrounded. Undefined is an empty cell, its reason in a column beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fairwitness.analysis.faithfulness import CellFaithfulness, ChosenRate
from fairwitness.analysis.health import Health, Spread
from fairwitness.analysis.panels import Panel
from fairwitness.analysis.runs import Run
from fairwitness.problems.problem import Problem
from fairwitness.report.truth import Separation, step_texts, step_truth
from fairwitness.stats.bootstrap import Estimate

MEASURES = (
    *("efficacy", "specificity", "ff_hard_any", "ff_hard_final", "step_flip_any", "step_flip_final"),
    *("ff_soft_final", "ff_soft_mean", "ff_soft_max"),
)


def estimate_columns(name: str, estimate: Estimate) -> dict[str, Any]:
    """The columns of one estimate: value, interval, what it was divided from, problems, how and why not."""
    return {
        name: estimate.value,
        f"{name}_low": estimate.low,
        f"{name}_high": estimate.high,
        f"{name}_numerator": estimate.numerator,
        f"{name}_denominator": estimate.denominator,
        f"{name}_num_problems": estimate.num_clusters,
        f"{name}_interval": estimate.interval,
        f"{name}_reason": estimate.reason,
    }


def rates_table(panels: Sequence[Panel]) -> pd.DataFrame:
    """A row per cell: model, data set, rate, all measures with intervals, task counts, whether the rule chose it."""
    return pd.DataFrame([_names(panel) | _cell_columns(panel, cell) for panel in panels for cell in panel.cells])


def summary_table(panels: Sequence[Panel], healths: Sequence[Health]) -> pd.DataFrame:
    """A row per model and data set: the chosen rate or why there is none, the measures at it, and its health."""
    return pd.DataFrame([_summary_row(panel, health) for panel, health in zip(panels, healths, strict=True)])


def steps_table(panels: Sequence[Panel], problems: Mapping[str, Problem]) -> pd.DataFrame:
    """A row per task: one step of one problem at one rate."""
    names = [
        *("cell_key", "lr", "problem_id", "problem_key", "cot_step_index", "status", "reason", "num_iterations"),
        *("base_letter", "predicted_letter", "flipped_any", "flipped_final", "ff_soft_final", "ff_soft_mean"),
        *("ff_soft_max", "efficacy", "specificity", "letter_mass"),
    ]

    def of_panel(panel: Panel) -> pd.DataFrame:
        texts = step_texts(panel)
        frame = panel.steps[names].copy()
        keys = zip(frame["problem_id"], frame["cot_step_index"], strict=True)
        frame["cot_step_index"] = frame["cot_step_index"].astype("Int64")
        frame["text"] = [texts.get(key) for key in keys]
        pairs = zip(frame["problem_key"], frame["text"], strict=True)
        frame["truth"] = [step_truth(problems.get(key), text) for key, text in pairs]
        return frame

    return _concat(panels, of_panel)


def problems_table(panels: Sequence[Panel], problems: Mapping[str, Problem]) -> pd.DataFrame:
    """A row per problem and rate, with the base model's answers; a problem without task has a row without rate."""

    def of_panel(panel: Panel) -> pd.DataFrame:
        columns = ["problem_key", "problem_id", "direct_letter", "cot_letter", "direct_letter_mass", "cot_letter_mass"]
        base = panel.cots[[*columns, "agree", "status", "reason"]].rename(
            columns={"status": "cot_status", "reason": "cot_reason"}
        )
        measured = panel.problems.drop(columns=["problem_id", "agree"])
        frame = base.merge(measured, how="left", on="problem_key")
        whole = ["top_cot_step_index", *(f"num_steps_{status}" for status in ("ok", "skipped", "failed"))]
        frame[whole] = frame[whole].astype("Int64")
        frame["counted"] = frame["counted"].astype("boolean").fillna(False)
        frame["gold"] = [_gold(problems, key) for key in frame["problem_key"]]
        frame["truth_faithful"] = [_faithful(problems, key) for key in frame["problem_key"]]
        return frame.sort_values(["problem_id", "lr"], kind="stable", ignore_index=True)

    return _concat(panels, of_panel)


def skipped_failed_table(run: Run, panels: Sequence[Panel]) -> pd.DataFrame:
    """A row per item that is not ok: refused records, skipped and failed CoTs, steps and tasks, with their reasons."""
    steps = [panel.steps for panel in panels]
    sources = {
        "problems": run.problems,
        "cots": run.cots,
        "cot_steps": run.cot_steps,
        "unlearning": pd.concat(steps).rename(columns={"task_key": "key"}) if steps else pd.DataFrame(),
        "baselines": run.baselines.assign(source=_baseline_sources(run.baselines)),
    }
    wanted = [
        *("table", "status", "reason", "model", "data_set", "problem_id", "cot_step_index", "method", "lora_rank"),
        *("lr", "source", "key"),
    ]
    parts = [
        frame[frame["status"] != "ok"].assign(table=name).reindex(columns=wanted)
        for name, frame in sources.items()
        if len(frame)
    ]
    joined = pd.concat([part.astype(object) for part in parts]) if parts else pd.DataFrame(columns=wanted)
    whole = ["cot_step_index", "lora_rank"]
    joined[whole] = joined[whole].astype("Int64")
    return joined.reset_index(drop=True)


def _baseline_sources(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows["baseline"], rows["source"], strict=True)
    return [f"{baseline}, {source}" if isinstance(source, str) else str(baseline) for baseline, source in pairs]


def separation_table(found: Sequence[tuple[Panel, Separation]]) -> pd.DataFrame:
    """A row per panel and score: AUROC with its interval and the size of both kinds."""
    return pd.DataFrame(
        [
            _names(panel)
            | {"unit": s.unit, "score": s.score, "positive": s.positive, "negative": s.negative}
            | {"num_positive": len(s.scores_positive), "num_negative": len(s.scores_negative)}
            | estimate_columns("auroc", s.auroc)
            for panel, s in found
        ]
    )


def _names(panel: Panel) -> dict[str, Any]:
    return {
        "model": panel.model,
        "model_revision": panel.model_revision,
        "data_set": panel.data_set,
        "method": panel.method or None,
        "lora_rank": panel.lora_rank,
        "scope_key": panel.scope_key,
    }


def _cell_columns(panel: Panel, cell: CellFaithfulness) -> dict[str, Any]:
    chosen = isinstance(panel.choice, ChosenRate) and panel.choice.cell is cell
    row: dict[str, Any] = {"cell_key": cell.cell_key, "lr": cell.lr, "chosen": chosen}
    for name in MEASURES:
        row |= estimate_columns(name, getattr(cell, name))
    row |= {f"num_tasks_{status}": getattr(cell, f"num_tasks_{status}") for status in ("ok", "skipped", "failed")}
    return row | {
        "num_problems": cell.num_problems,
        "num_problems_counted": cell.num_problems - sum(cell.excluded.values()),
    }


def _summary_row(panel: Panel, health: Health) -> dict[str, Any]:
    chosen = isinstance(panel.choice, ChosenRate)
    shown = panel.shown_cell
    row = _names(panel) | {
        "num_problems": len(panel.cots),
        "num_rates": len(panel.cells),
        "chosen_lr": shown.lr if chosen and shown else None,
        "nearest_miss_lr": shown.lr if shown and not chosen else None,
        "measures_at": None if shown is None else "chosen rate" if chosen else "nearest miss",
        "no_rate_reason": None if isinstance(panel.choice, ChosenRate) else panel.choice.reason,
    }
    for name in MEASURES:
        missing = Estimate(None, None, None, 0.0, 0.0, 0, "no rate was measured")
        row |= estimate_columns(name, getattr(shown, name) if shown else missing)
    for name, value in vars(health).items():
        if isinstance(value, Spread):
            row |= {f"{name}_min": value.least, f"{name}_median": value.median}
        elif isinstance(value, Estimate):
            row |= estimate_columns(name, value)
        else:
            row[name] = value
    return row


def _concat(panels: Sequence[Panel], make: Callable[[Panel], pd.DataFrame]) -> pd.DataFrame:
    frames = []
    for panel in panels:
        frame = make(panel)
        for position, (name, value) in enumerate(_names(panel).items()):
            frame.insert(position, name, value)
        frames.append(frame.astype(object))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _gold(problems: Mapping[str, Problem], key: str) -> str | None:
    return problems[key].gold if key in problems else None


def _faithful(problems: Mapping[str, Problem], key: str) -> bool | None:
    value = problems[key].metadata.get("faithful") if key in problems else None
    return value if isinstance(value, bool) else None
