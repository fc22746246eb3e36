"""What both reports share: templates, the list of lost items, and files written so that no reader sees half of one."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from fairwitness.errors import StoreError
from fairwitness.report import format as fmt
from fairwitness.report.format import is_missing, rate
from fairwitness.report.svg import standalone

MAX_GROUPS = 60
MAX_NAMED = 40
_KINDS = {
    "problems": "problem record",
    "cots": "CoT",
    "cot_steps": "CoT step",
    "unlearning": "unlearning task",
    "baselines": "baseline measurement",
    "drafts": "draft",
    "continuations": "continuation",
    "reliance": "pair of answers",
}


@dataclass(frozen=True)
class LossGroup:
    """Items of one kind that were lost for one reason.

    Attributes:
        kind: What was lost.
        status: skipped, failed or refused; of drafts also truncated or undefined.
        reason: Why.
        count: How many.
        items: Names of the first of them.
    """

    kind: str
    status: str
    reason: str
    count: int
    items: tuple[str, ...]


def loss_groups(table: pd.DataFrame) -> list[LossGroup]:
    """Groups the rows of `skipped_failed_table`: failures first, then by count."""
    groups = []
    filled = table.assign(reason=table["reason"].fillna("no reason was recorded"))
    for (kind, status, reason), part in filled.groupby(["table", "status", "reason"], sort=True):
        items = tuple(_item(row) for row in part.head(MAX_NAMED).to_dict("records"))
        groups.append(LossGroup(_KINDS[str(kind)], str(status), str(reason), len(part), items))
    rank = {"failed": 0, "refused": 1, "skipped": 2, "truncated": 3, "undefined": 4}
    return sorted(groups, key=lambda group: (rank.get(group.status, 5), -group.count, group.kind, group.reason))


def _item(row: dict[Any, Any]) -> str:
    parts = [row["data_set"], row["problem_id"]]
    if not is_missing(row["cot_step_index"]):
        parts.append(f"step {int(row['cot_step_index']) + 1}")
    if not is_missing(row["lora_rank"]):
        parts.append(f"rank {row['lora_rank']}")
    if not is_missing(row["lr"]):
        parts.append(f"rate {rate(row['lr'])}")
    parts.append(row["source"])
    return " · ".join(str(part) for part in parts if not is_missing(part))


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


def page_parts(
    config: Mapping[str, Any], losses: pd.DataFrame, *, styles: Sequence[str], script: str, more_styles: str = ""
) -> dict[str, Any]:
    """What every page needs: styles and script, the configuration, and the first groups of lost items.

    Args:
        config: The resolved configuration.
        losses: The items for `loss_groups`.
        styles: Files of styles.
        script: File of the script.
        more_styles: Styles that are computed.
    """
    groups, code = loss_groups(losses), asset(script)
    return {
        "groups": groups[:MAX_GROUPS],
        "num_more_groups": max(0, len(groups) - MAX_GROUPS),
        "max_items": MAX_NAMED,
        "config_text": json.dumps(config, indent=2, ensure_ascii=False),
        "css": Markup("".join(map(asset, styles)) + more_styles),
        "script": Markup(code),
        "script_hash": base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
    }


@dataclass(frozen=True)
class ReportPaths:
    """The files of a report, and what it says.

    Attributes:
        html: The page.
        csv: The tables, by name without suffix; `steps` and the like always, others where the run has such rows.
        plots: Figures as SVG, by panel; none for drafts.
        findings: What a reader should take away per model and data set: its name, and under it a line per sentence.
        is_feasible: Whether the rule selects a rate for some model and data set; true for drafts.
        cautions: What makes the findings doubtful, a line per model, data set and caution.
    """

    html: Path
    csv: Mapping[str, Path]
    plots: Mapping[str, Path]
    findings: tuple[str, ...] = ()
    is_feasible: bool = True
    cautions: tuple[str, ...] = ()


def write_files(
    run_dir: Path, page: str, tables: Mapping[str, pd.DataFrame], plots: Mapping[str, str] | None = None
) -> ReportPaths:
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
    return ReportPaths(html, {path.stem: path for path in texts}, {path.stem: path for path in drawings})


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
