"""Conditions for reading a store."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def one_of(column: str, values: Iterable[str]) -> pc.Expression:
    """That a column of text holds one of some values. Without a value no row fits (pyarrow alone would fail)."""
    return pc.field(column).isin(pa.array(list(values), pa.string()))
