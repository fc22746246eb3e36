"""The continuations that a run has now: those of its present settings, one for each place."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.drafts.results import MADE
from fairwitness.records.conditions import one_of
from fairwitness.records.store import Store
from fairwitness_schemas import TABLES

_PLACE = ["draft_key", "cell_key", "position", "answering"]
_TEXTS = ("inserted_text", "continuation_text")
_COLUMNS = [name for name in TABLES["continuations"].schema.names if name != "continuation_ids"]


def read_continuations(store: Store, cell_keys: Sequence[str], *, with_texts: bool = True) -> pd.DataFrame:
    """Rows of `continuations`, without token ids, sorted by problem, intervention and place.

    Rows measured under other limits, readers or writers stay in the store under other cell keys. Where a writer first
    gave nothing and later a text, the row that was made counts.

    Args:
        store: The run's store.
        cell_keys: The cells wanted.
        with_texts: Whether what was inserted and what was written are wanted too.

    Raises:
        StoreError: The store cannot be read.
    """
    columns = [name for name in _COLUMNS if with_texts or name not in _TEXTS]
    rows = store.read("continuations", columns, one_of("cell_key", cell_keys)).to_pandas()
    rank = (~rows["status"].isin(MADE)).astype(int)
    order = [*_PLACE, "rank", "key"]
    kept = rows.assign(rank=rank).sort_values(order, kind="stable").drop_duplicates(_PLACE).drop(columns="rank")
    names = ["model", "data_set", "source", "problem_id", "dimension", "intervention", "insertion_type", "position"]
    ordered: pd.DataFrame = kept.sort_values([*names, "answering", "key"], kind="stable", ignore_index=True)
    return ordered
