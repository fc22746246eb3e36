"""How well ff-hard and ff-soft recover a ground truth that problems carry with them (the organism's do).

A problem's truth is `metadata["faithful"]`: whether the direct answer uses the reasoning that the CoT states. A step's
truth is the organism's own label of its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.analysis.columns import columns_of, estimate_columns
from fairwitness.analysis.panels import Panel
from fairwitness.analysis.runs import Run
from fairwitness.organisms.world import is_step_used, label_cot_step
from fairwitness.problems.problem import Problem
from fairwitness.stats.auroc import auroc_estimate
from fairwitness.stats.bootstrap import Estimate

FF_HARD = "ff-hard, any iteration"
STEPS_OF_FAITHFUL = ("cot_step", "ff-soft, faithful problems", "states the fact in question", "states another fact")
STEPS_OF_ALL = ("cot_step", "ff-soft, all problems", "used for the answer", "not used")
_STEP_KEYS = ("faithful", "person", "attribute")


@dataclass(frozen=True)
class Separation:
    """How well one score tells two kinds apart.

    Attributes:
        unit: `problem` or `cot_step`.
        score: Name of the score.
        positive: Name of the kind that should score high.
        negative: Name of the other kind.
        auroc: Area under the ROC curve with its interval over problems.
        scores_positive: The scores of the one kind, in order of problem and step.
        scores_negative: The scores of the other.
    """

    unit: str
    score: str
    positive: str
    negative: str
    auroc: Estimate
    scores_positive: tuple[float, ...]
    scores_negative: tuple[float, ...]


def separations(
    panel: Panel, problems: Mapping[str, Problem], rng_for: Callable[..., np.random.Generator]
) -> list[Separation]:
    """All separations of a panel at the rate that the report shows; empty when its problems carry no ground truth.

    Only problems that count for ff-hard enter, and only their measured steps.

    Args:
        panel: The panel.
        problems: problem_key → problem.
        rng_for: Makes a generator from names.
    """
    counted = panel.shown_problems[panel.shown_problems["counted"]]
    truth = {key: problems[key].metadata.get("faithful") for key in counted["problem_key"] if key in problems}
    known = counted["problem_key"].map(lambda key: isinstance(truth.get(key), bool))
    labelled = counted[known.to_numpy(dtype=bool)]
    if labelled.empty:
        return []
    labelled = labelled.assign(positive=labelled["problem_key"].map(lambda key: truth[key]))

    def of_problems(score: str, column: str) -> Separation:
        rng = rng_for(panel.scope_key, "problem", column)
        return _separation(labelled, column, ("problem", score, "faithful", "unfaithful"), rng)

    steps = _labelled_steps(panel, labelled, problems)
    faithful = steps[steps["faithful"]]

    def of_steps(part: pd.DataFrame, flag: str, names: tuple[str, str, str, str]) -> Separation:
        rng = rng_for(panel.scope_key, "cot_step", flag)
        part = part.assign(positive=part[flag])
        return _separation(part, "ff_soft_final", names, rng)

    found = [
        of_problems(FF_HARD, "ff_hard_any"),
        of_problems("ff-hard, final iteration", "ff_hard_final"),
        of_problems("largest ff-soft of a step", "ff_soft_max"),
    ]
    if steps.empty:
        return found
    return [
        *found,
        of_steps(faithful, "relevant", STEPS_OF_FAITHFUL),
        of_steps(steps, "used", STEPS_OF_ALL),
    ]


def step_truth(problem: Problem | None, text: str | None) -> str | None:
    """`relevant`, `irrelevant`, `other`, or None when the problem carries no such truth."""
    if problem is None or text is None or any(key not in problem.metadata for key in _STEP_KEYS):
        return None
    return label_cot_step(problem, text)


def problems_of(run: Run) -> dict[str, Problem]:
    """problem_key → problem, of a run."""
    rows = ((str(row["key"]), problem_from_row(row)) for row in run.problems.to_dict("records"))
    return {key: problem for key, problem in rows if problem is not None}


def problem_from_row(row: Mapping[Any, Any]) -> Problem | None:
    """The problem of a row of `problems`; None for a refused one."""
    if row["status"] != "ok":
        return None
    metadata = json.loads(row["metadata_json"]) if isinstance(row["metadata_json"], str) else {}
    return Problem(
        problem_id=row["problem_id"],
        question=row["question"],
        choices=tuple(row["choices"]),
        gold=row["gold"] if isinstance(row["gold"], str) else None,
        data_set=row["data_set"],
        split=row["split"] if isinstance(row["split"], str) else "",
        metadata=metadata,
    )


def _labelled_steps(panel: Panel, labelled: pd.DataFrame, problems: Mapping[str, Problem]) -> pd.DataFrame:
    texts = panel.step_texts
    steps = panel.shown_steps
    steps = steps[steps["problem_key"].isin(labelled["problem_key"]) & steps["ff_soft_final"].notna()]
    records = []
    for row in steps.to_dict("records"):
        problem = problems[row["problem_key"]]
        text = texts.get((row["problem_id"], row["cot_step_index"]))
        truth = step_truth(problem, text)
        if text is not None and truth in ("relevant", "irrelevant"):
            kinds = {"faithful": problem.metadata["faithful"], "relevant": truth == "relevant"}
            records.append(dict(row) | kinds | {"used": is_step_used(problem, text)})
    columns = [*steps.columns, "faithful", "relevant", "used"]
    return pd.DataFrame.from_records(records, columns=columns).astype(
        {"faithful": bool, "relevant": bool, "used": bool}
    )


def _separation(
    frame: pd.DataFrame, column: str, names: tuple[str, str, str, str], rng: np.random.Generator
) -> Separation:
    known = frame[frame[column].notna()]
    scores = known[column].astype(float).to_numpy()
    labels = known["positive"].to_numpy(dtype=bool)
    return Separation(
        *names,
        auroc=auroc_estimate(scores, labels, known["problem_key"].to_numpy(dtype=str), rng=rng),
        scores_positive=tuple(scores[labels].tolist()),
        scores_negative=tuple(scores[~labels].tolist()),
    )


def separation_table(found: Sequence[tuple[Panel, Separation]]) -> pd.DataFrame:
    """A row per panel and score: AUROC with its interval and the size of both kinds."""
    return pd.DataFrame(
        [
            panel.names
            | columns_of(s, ("unit", "score", "positive", "negative"))
            | {"num_positive": len(s.scores_positive), "num_negative": len(s.scores_negative)}
            | estimate_columns("auroc", s.auroc)
            for panel, s in found
        ]
    )
