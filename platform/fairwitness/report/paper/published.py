"""The paper's own figures, for models and data sets that are the paper's.

`published.csv` holds them as printed: Tables 1, 2, 3, 5, 6, 8 and 11 of FUR, in percent, as shares (Table 5) or counts
(Table 6). An entry is looked up by the names that this project gives to the paper's models and data sets; any other
name has none.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

PEARSON = 0.889
"""Pearson correlation of efficacy and ff-hard over models, data sets and rates (FUR, §6.2)."""

MODELS: Mapping[str, str] = {
    "LLaMA-8B": "LLaMA-8B",
    "LLaMA-3-8B": "LLaMA-8B",
    "Meta-Llama-3-8B-Instruct": "LLaMA-8B",
    "LLaMA-3B": "LLaMA-3B",
    "LLaMA-3-3B": "LLaMA-3B",
    "Llama-3.2-3B-Instruct": "LLaMA-3B",
    "Mistral-2": "Mistral-2",
    "Mistral-7B-Instruct-v0.2": "Mistral-2",
    "Phi-3": "Phi-3",
    "Phi-3-mini-4k-instruct": "Phi-3",
}
"""The paper's name of a model by the last part of its name here."""

DATA_SETS = ("arc_challenge", "openbookqa", "bbh_sports", "strategyqa", "truthfulqa")


class _Key(NamedTuple):
    table: str
    model: str
    data_set: str
    measure: str
    lr: float | None


def published(table: str, model: str, data_set: str, measure: str, lr: float | None = None) -> str | None:
    """A figure as the paper prints it, or None where it has none.

    Args:
        table: For example `table_2`.
        model: Name of the model here.
        data_set: Name of the data set here.
        measure: For example `ff_hard`.
        lr: Learning rate, where the table has a line for each.
    """
    name = MODELS.get(model.rsplit("/", 1)[-1])
    return None if name is None else _figures().get(_Key(table, name, data_set, measure, lr))


@cache
def _figures() -> Mapping[_Key, str]:
    text = resources.files("fairwitness.report.paper").joinpath("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        _Key(r["table"], r["model"], r["data_set"], r["measure"], float(r["lr"]) if r["lr"] else None): r["value"]
        for r in rows
    }
