"""Which continuations the page shows in full when there are more than it can hold. Pure."""

from __future__ import annotations

from hashlib import sha256

import pandas as pd

from fairwitness.drafts.counting import with_outcomes

MAX_ITEMS = 200
"""Continuations that the page shows in full by default; the tables hold all."""
RULE = (
    "in turn from every combination of model, data set, source, kind of insertion, behaviour and outcome, so that rare "
    "outcomes are there too; within one, drafts in an order that does not depend on what was measured"
)
_KIND = ["model", "data_set", "source", "intervention", "insertion_type", "answering", "behaviour", "outcome"]


def chosen(rows: pd.DataFrame, max_items: int) -> pd.DataFrame:
    """At most `max_items` rows, in the order they came in; all where there are no more.

    The order of drafts is that of a hash of their problem's name, the same in every combination: what is shown comes
    from few drafts, each seen from several sides.

    Args:
        rows: Rows of `continuations`.
        max_items: Most rows; 0 gives none.
    """
    if len(rows) <= max_items:
        return rows
    lot = rows["problem_id"].map(lambda name: sha256(str(name).encode()).hexdigest())
    ordered = with_outcomes(rows).assign(lot=lot).sort_values(["lot", "key"], kind="stable")
    turn = ordered.groupby(_KIND, dropna=False, sort=True).cumcount()
    first = ordered.assign(turn=turn).sort_values(["turn", "lot", "key"], kind="stable").head(max_items)
    return rows.loc[sorted(first.index)]
