"""Writes a report's files: a reader who has the old ones open never sees half a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import jinja2
import pandas as pd

from fairwitness.errors import StoreError
from fairwitness.report import format as fmt
from fairwitness.report.svg import standalone


@cache
def environment() -> jinja2.Environment:
    """The templates, escaping by default, with the functions that write numbers."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fairwitness.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    names = ("percent", "decimal", "signed", "rate", "count", "figure", "moment", "duration", "plural", "is_missing")
    made.globals |= {name: getattr(fmt, name) for name in names}
    return made


def asset(name: str) -> str:
    """The text of a file beside the templates: styles or a script."""
    return resources.files("fairwitness.report").joinpath("templates", name).read_text(encoding="utf-8")


class Written(NamedTuple):
    """Files of a report: the page, and tables and plots by name."""

    html: Path
    csv: Mapping[str, Path]
    plots: Mapping[str, Path]


def write_files(
    run_dir: Path, page: str, tables: Mapping[str, pd.DataFrame], plots: Mapping[str, str] | None = None
) -> Written:
    """Writes report.html, a CSV file per table and an SVG file per plot.

    Args:
        run_dir: The run directory.
        page: The page.
        tables: The tables by name without suffix.
        plots: The plots by name without suffix, as they stand in the page; None where the page alone has them.

    Raises:
        StoreError: They cannot be written.
    """
    texts = {run_dir / "csv" / f"{name}.csv": as_csv(table) for name, table in tables.items()}
    drawings = {run_dir / "plots" / f"{name}.svg": standalone(svg) for name, svg in (plots or {}).items()}
    html = run_dir / "report.html"
    try:
        for path, text in {**texts, **drawings, html: page}.items():
            path.parent.mkdir(exist_ok=True)
            replace_file(path, text)
    except OSError as error:
        raise StoreError(
            f"{run_dir}: the report cannot be written ({error}); free space or check permissions"
        ) from error
    return Written(html, {path.stem: path for path in texts}, {path.stem: path for path in drawings})


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
