"""The data dictionary of the frames, from `columns.yaml`, and the columns that estimates and correlations become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import yaml

from fairwitness.stats.bootstrap import Estimate
from fairwitness.stats.correlation import Correlation
from fairwitness_schemas import TABLES
from fairwitness_schemas.table import DESCRIPTION

_SPEC = yaml.safe_load(resources.files("fairwitness.analysis").joinpath("columns.yaml").read_text(encoding="utf-8"))
MEASURES: Mapping[str, str] = _SPEC["measures"]
"""What a cell shows, over problems whose direct and CoT answers agree: name → meaning."""
CAPABILITIES: Mapping[str, str] = _SPEC["capabilities"]
"""What a cell shows of general capability: name → meaning."""


def _columns(part: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    """Name and meaning of each column of one part of a frame."""
    for table, names in part.get("stored", {}).items():
        schema = TABLES[table].schema
        # Token ids are in no frame.
        for name in [n for n in schema.names if n != "continuation_ids"] if names == "all" else names:
            yield name, schema.field(name).metadata[DESCRIPTION].decode()
    yield from part.get("columns", {}).items()
    for name, text in part.get("estimates", {}).items():
        for suffix, form in _SPEC["estimate"].items():
            yield f"{name}{suffix}", form.format(name if suffix else text)


COLUMNS: Mapping[str, Mapping[str, str]] = {
    frame: {name: text for part in parts for name, text in _columns(part)} for frame, parts in _SPEC["frames"].items()
}
"""Frame → column → what it means, in the order of the columns."""


def estimate_columns(name: str, estimate: Estimate) -> dict[str, Any]:
    """The columns of one estimate: value, interval, what it was divided from, problems, how and why not."""
    values = (estimate.value, estimate.low, estimate.high, estimate.numerator, estimate.denominator)
    rest = (estimate.num_clusters, estimate.interval, estimate.reason)
    return {f"{name}{suffix}": value for suffix, value in zip(_SPEC["estimate"], (*values, *rest), strict=True)}


def columns_of(owner: object, names: Iterable[str]) -> dict[str, Any]:
    """The columns of those fields of an object: of an estimate several, of any other value one."""
    row: dict[str, Any] = {}
    for name in names:
        value = getattr(owner, name)
        row |= estimate_columns(name, value) if isinstance(value, Estimate) else {name: value}
    return row


def correlation_columns(
    name: str, found: Correlation, *, p: str = "p_value", count: str = "num_steps"
) -> dict[str, Any]:
    """The columns of one correlation: value, interval, p value, number of points, and why one is missing."""
    values = (found.value, found.low, found.high, found.p_value, found.num_points, found.reason)
    suffixes: Sequence[str] = ("", "_low", "_high", f"_{p}", f"_{count}", "_reason")
    return {f"{name}{suffix}": value for suffix, value in zip(suffixes, values, strict=True)}
