"""What a cell is: one model on one data set, its weights changed in one way at one learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import pandas as pd

from fairwitness.text.numbers import method_name


@dataclass(frozen=True)
class PanelId:
    """One model on one data set, its weights changed in one way: what cells that differ only in their rate share.

    Attributes:
        model: Name or path of the model.
        data_set: Name of the data set.
        method: How weights were changed, `ff2` or `lora`; empty where nothing was unlearned or it is not known.
        lora_rank: Rank of the adapters; None for other methods.
    """

    model: str
    data_set: str
    method: str
    lora_rank: int | None

    @property
    def method_name(self) -> str:
        """The method for people: `full FF2` or `LoRA, rank 8`."""
        return method_name(self.method, self.lora_rank)

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: model, data set, method, rank; for a cell its rate too."""
        return self.model, self.data_set, self.method, self.lora_rank or 0

    @property
    def draw_names(self) -> tuple[str, ...]:
        """What names random draws for it, such as those of an interval: the same for every version of the code."""
        return tuple(map(str, self.order))

    def columns(self) -> dict[str, Any]:
        """The columns of tables, and the parameters in MLflow, that name it. What it does not have is None."""
        names = {"model": self.model, "data_set": self.data_set}
        return {**names, "method": self.method or None, "lora_rank": self.lora_rank}


@dataclass(frozen=True)
class CellId(PanelId):
    """One cell: a panel's model, data set and method, at one rate.

    Attributes:
        lr: Learning rate; NaN where no row of the cell tells it.
    """

    lr: float

    @property
    def order(self) -> tuple[Any, ...]:
        """See `PanelId.order`; cells without a rate come first."""
        return *super().order, 0.0 if isnan(self.lr) else self.lr

    def columns(self) -> dict[str, Any]:
        """See `PanelId.columns`."""
        return super().columns() | {"lr": None if isnan(self.lr) else self.lr}


def panel_id(row: Mapping[str, Any] | pd.Series[Any]) -> PanelId:
    """The panel that a row of `unlearning`, or of a table with its columns, belongs to."""
    method, rank = row["method"], row["lora_rank"]
    return PanelId(
        str(row["model"]),
        str(row["data_set"]),
        method if isinstance(method, str) else "",
        None if pd.isna(rank) else int(rank),
    )


def cell_id(row: Mapping[str, Any] | pd.Series[Any]) -> CellId:
    """The cell that a row belongs to; see `panel_id`."""
    return CellId(**vars(panel_id(row)), lr=float(row["lr"]))
