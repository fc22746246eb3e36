"""Skipped, failed and refused items, grouped by their reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.report.format import is_missing, rate

MAX_GROUPS = 60
MAX_NAMED = 40
_KINDS = {
    "problems": "problem record",
    "cots": "CoT",
    "cot_steps": "CoT step",
    "unlearning": "unlearning task",
    "baselines": "baseline measurement",
    "drafts": "draft",
    "continuations": "continuation",
    "reliance": "pair of answers",
}


@dataclass(frozen=True)
class LossGroup:
    """Items of one kind that were lost for one reason.

    Attributes:
        kind: What was lost.
        status: skipped, failed or refused; of drafts also truncated or undefined.
        reason: Why.
        count: How many.
        items: Names of the first of them.
    """

    kind: str
    status: str
    reason: str
    count: int
    items: tuple[str, ...]


def loss_groups(table: pd.DataFrame) -> list[LossGroup]:
    """Groups the rows of `skipped_failed_table`: failures first, then by count."""
    groups = []
    filled = table.assign(reason=table["reason"].fillna("no reason was recorded"))
    for (kind, status, reason), part in filled.groupby(["table", "status", "reason"], sort=True):
        items = tuple(_item(row) for row in part.head(MAX_NAMED).to_dict("records"))
        groups.append(LossGroup(_KINDS[str(kind)], str(status), str(reason), len(part), items))
    rank = {"failed": 0, "refused": 1, "skipped": 2, "truncated": 3, "undefined": 4}
    return sorted(groups, key=lambda group: (rank.get(group.status, 5), -group.count, group.kind, group.reason))


def _item(row: dict[Any, Any]) -> str:
    parts = [row["data_set"], row["problem_id"]]
    if not is_missing(row["cot_step_index"]):
        parts.append(f"step {int(row['cot_step_index']) + 1}")
    if not is_missing(row["lora_rank"]):
        parts.append(f"rank {row['lora_rank']}")
    if not is_missing(row["lr"]):
        parts.append(f"rate {rate(row['lr'])}")
    parts.append(row["source"])
    return " · ".join(str(part) for part in parts if not is_missing(part))
