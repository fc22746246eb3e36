"""What judges found, per cell: how often the CoT after unlearning argues for another answer (FUR, Tables 3 and 10)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.identity import PanelId, panel_id
from fairwitness.analysis.runs import JUDGE_JOB, imported_rates, superseded
from fairwitness.problems.draws import item_rng
from fairwitness.records.store import Store, one_of
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined

_TASK_COLUMNS = ["task_key", "cell_key", "iteration", "method", "lora_rank", "lr", "flipped"]


@dataclass(frozen=True)
class JudgedCell(PanelId):
    """One judge's verdicts on one model, data set and rate.

    `COLUMNS["judgements"]` says what each figure is. `cell_key` and `lr` are None for judgements from elsewhere.
    """

    cell_key: str | None
    lr: float | None
    judge: str
    judge_key: str
    verdicts: Mapping[str, int]
    different: Estimate
    different_changed: Estimate
    num_skipped: int
    num_failed: int
    num_unparsable: int
    reasons: Mapping[str, int]
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    num_from_cache: int
    cost: float

    def columns(self) -> dict[str, Any]:
        """See `PanelId.columns`, with the rate."""
        return super().columns() | {"lr": self.lr}

    @property
    def num_judged(self) -> int:
        """Steps with a verdict."""
        return sum(self.verdicts.values())


def judged_cells(
    store: Store, *, seed: int, cell_keys: Collection[str] | None = None, judge_keys: Collection[str] | None = None
) -> list[JudgedCell]:
    """Aggregates the stored judgements, in the order of model, data set, method, rate and judge.

    Those of a judge that was called again in another version, of its code or its template, do not count.

    Args:
        store: The store of a run.
        seed: The run's seed, for the intervals: a bootstrap that draws whole problems.
        cell_keys: The cells wanted; None for all.
        judge_keys: The judges wanted; None for all.

    Raises:
        StoreError: The store cannot be read.
    """
    where = pc.field("kind") == KIND
    for name, keys in (("cell_key", cell_keys), ("judge_key", judge_keys)):
        where = where if keys is None else where & one_of(name, keys)
    rows = store.read("judgements", where=where).to_pandas().sort_values("key", kind="stable")
    rows = rows[~rows["judge_key"].isin(superseded(store, JUDGE_JOB))]
    known = [key for key in rows["cell_key"].unique() if isinstance(key, str)]
    tasks = store.read("unlearning", _TASK_COLUMNS, one_of("cell_key", known)).to_pandas()
    last = tasks.sort_values("iteration").groupby("task_key").tail(1).set_index("task_key")
    # A step that was measured again, with another retain set, was judged as what it was before.
    is_current = rows["item_key"].isin(last.index) | ~rows["cell_key"].isin(tasks["cell_key"].unique())
    groups = rows[is_current].groupby(["model", "data_set", "cell_key", "judge_key"], dropna=False, sort=True)
    rates = imported_rates(store)
    cells = [_cell(group, last, seed, rates) for _, group in groups]
    return sorted(cells, key=lambda cell: (cell.order, cell.lr or 0, cell.judge))


def _cell(rows: pd.DataFrame, last: pd.DataFrame, seed: int, rates: Mapping[str, float]) -> JudgedCell:
    first = rows.iloc[0]
    tasks = last.reindex(rows["item_key"])
    settings = tasks.dropna(subset=["lr"])
    how = {name: settings[name].iloc[0] if len(settings) else None for name in ("method", "lora_rank")}
    judged = rows.assign(flipped=tasks["flipped"].to_numpy())[(rows["status"] == "ok").to_numpy()]
    changed = judged[judged["flipped"].eq(True).fillna(False).astype(bool)]
    failed = rows[rows["status"] == "failed"]
    cell_key = first["cell_key"] if isinstance(first["cell_key"], str) else None

    names = [str(first[column]) for column in ("model", "data_set", "judge")] + [str(value) for value in how.values()]

    def different(part: pd.DataFrame, name: str, nothing: str) -> Estimate:
        if part.empty:
            return undefined(nothing)
        rng = item_rng(seed, *names, name)
        is_different = (part["verdict"] == "different").to_numpy(dtype=float)
        return cluster_mean(is_different, part["problem_id"].to_numpy(dtype=str), rng=rng, is_rate=True)

    is_unknown = len(judged) > 0 and not judged["flipped"].notna().any()
    nothing = (
        "it is not stored whose direct answer changed" if is_unknown else "no judged step changed the direct answer"
    )
    return JudgedCell(
        **vars(panel_id({"model": first["model"], "data_set": first["data_set"], **how})),
        cell_key=cell_key,
        lr=rates.get(cell_key or "") if settings.empty else float(settings["lr"].iloc[0]),
        judge=str(first["judge"]),
        judge_key=str(first["judge_key"]),
        verdicts={verdict: int((judged["verdict"] == verdict).sum()) for verdict in VERDICTS},
        different=different(judged, "judged", "no step was judged"),
        different_changed=different(changed, "changed", nothing),
        num_skipped=int((rows["status"] == "skipped").sum()),
        num_failed=len(failed),
        num_unparsable=int(failed["reply"].notna().sum()),
        reasons={str(k): int(v) for k, v in rows["reason"].dropna().value_counts().items()},
        num_prompt_tokens=_total(rows["num_prompt_tokens"]),
        num_completion_tokens=_total(rows["num_completion_tokens"]),
        num_from_cache=int(rows["from_cache"].eq(True).sum()),
        cost=float(rows["cost"].sum()),
    )


def _total(counts: pd.Series[Any]) -> int | None:
    return int(counts.sum()) if counts.notna().any() else None


VERDICTS = ("same", "different", "unclear")


KIND = "cot_after"
