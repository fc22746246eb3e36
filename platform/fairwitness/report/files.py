"""Writes a report's files: a reader who has the old ones open never sees half a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fairwitness.errors import StoreError


def write_files(run_dir: Path, page: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, Path]:
    """Writes report.html and a CSV file per table; gives the paths of the tables.

    Args:
        run_dir: The run directory.
        page: The page.
        tables: The tables by name without suffix.

    Raises:
        StoreError: They cannot be written.
    """
    paths = {name: run_dir / "csv" / f"{name}.csv" for name in tables}
    try:
        (run_dir / "csv").mkdir(exist_ok=True)
        for name, table in tables.items():
            replace_file(paths[name], as_csv(table))
        replace_file(run_dir / "report.html", page)
    except OSError as error:
        raise StoreError(
            f"{run_dir}: the report cannot be written ({error}); free space or check permissions"
        ) from error
    return paths


def as_csv(table: pd.DataFrame) -> str:
    """A table as CSV text, undefined cells empty."""
    text = table.to_csv(index=False, lineterminator="\n")
    if "\r" not in text:
        return text
    # The csv module quotes no lone carriage return, which readers take for the end of a row.
    return table.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def replace_file(path: Path, text: str) -> None:
    """Puts a text in the place of a file at once."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8", newline="")
    os.replace(temporary, path)
