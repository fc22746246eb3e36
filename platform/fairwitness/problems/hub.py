"""Reads rows from the Hugging Face hub, or from a local folder in the hub's layout, through `datasets`."""

from __future__ import annotations

import json

from fairwitness.config import fingerprint
from fairwitness.errors import DataError
from fairwitness.problems.readers import text_fault
from fairwitness.problems.records import ReadResult, Record, Refused


def read_hub(hub_id: str, *, config: str | None, split: str, revision: str | None) -> ReadResult:
    """Downloads (or takes from the cache) one split of a data set.

    Args:
        hub_id: Id on the hub, or a local folder in the hub's layout.
        config: Configuration (subset), or None.
        split: Split, for example `test` or `test[:100]`.
        revision: Commit or tag, or None for the newest.

    Returns:
        One record per row, numbered from 1. The content hash covers the rows, so that it does not depend on the cache.

    Raises:
        DataError: The set, its configuration or split does not exist, or cannot be fetched.
    """
    import datasets

    name = f"hub:{hub_id}" + (f"/{config}" if config else "")
    try:
        rows = datasets.load_dataset(hub_id, config, split=split, revision=revision)
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name}: split {split!r} cannot be loaded ({reason}); check id, configuration and split, go online, or "
            "give a downloaded file by `path`"
        ) from error
    records: list[Record] = []
    refused: list[Refused] = []
    for line, row in enumerate(rows, start=1):
        record = Record(name, line, line, dict(row))
        fault = text_fault(record)
        refused.append(fault) if fault else records.append(record)
    content = [json.dumps(record.values, sort_keys=True, default=str) for record in records]
    return ReadResult(records, refused, fingerprint(content))
