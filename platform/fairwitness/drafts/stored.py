"""The continuations that a run has now: those of its present settings, one for each place."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.drafts.results import MADE
from fairwitness.records.conditions import one_of
from fairwitness.records.store import Store
from fairwitness_schemas import TABLES

_PLACE = ["draft_key", "cell_key", "position", "answering"]
_ORDER = {
    "dimension": {"intra": 0, "answer": 1},
    "intervention": {"shift_mapping": 0, "corrupt_option": 1, "direct": 6, "plausible": 7},
    "insertion_type": {"continue": 0, "backtrack": 1},
    "position": {"initial": 0, "middle": 1, "end": 2},
    "answering": {"standard": 0, "immediate": 1},
}
"""How the paper orders them."""
_TEXTS = ("inserted_text", "continuation_text")
_COLUMNS = [name for name in TABLES["continuations"].schema.names if name != "continuation_ids"]


def read_continuations(store: Store, cell_keys: Sequence[str], *, with_texts: bool = True) -> pd.DataFrame:
    """Rows of `continuations`, without token ids, in the order of the paper.

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
    names = ["model", "data_set", "source", "problem_id", *(f"_{name}" for name in _ORDER), "intervention", "key"]
    ranked = kept.assign(**{f"_{name}": kept[name].map(ranks).fillna(5) for name, ranks in _ORDER.items()})
    ordered: pd.DataFrame = ranked.sort_values(names, kind="stable", ignore_index=True)
    return ordered[columns]
