"""Makes the report of a run of drafts: csv/*.csv and report.html."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import pyarrow.compute as pc

from fairwitness.drafts.results import (
    Rate,
    answer_tokens,
    behaviour_shares,
    consistency_rates,
    intra_rates,
    reliance_rates,
)
from fairwitness.errors import StoreError
from fairwitness.records.parts import unwritable
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store

JOB = "draft_faithfulness"


@dataclass(frozen=True)
class DraftReportPaths:
    """The files of a report: the page, the tables by name, and what a reader should take away."""

    html: Path
    csv: Mapping[str, Path]
    findings: tuple[str, ...]


def build_draft_report(run_dir: Path) -> DraftReportPaths:
    """Makes the report from what is stored, replacing an earlier one.

    Raises:
        StoreError: There is no run, the store cannot be read, or the report cannot be written.
    """
    run = RunDirectory.at(run_dir)
    store = run.store(create=False)
    info = _latest(run, store)
    where = pc.field("scope_key").isin(info["scope_keys"])
    rows = store.read("continuations", where=where).to_pandas()
    tables = {name: _frame(rates) for name, rates in _rates(rows).items()}
    paths = {name: run.csv_path / f"{name}.csv" for name in tables}
    try:
        run.csv_path.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(paths[name], index=False)
        _write(run.report_path, _PAGE.render(name=run.name, tables=tables))
    except OSError as error:
        raise unwritable(run.report_path, error) from error
    return DraftReportPaths(run.report_path, paths, _findings(tables["intra"]))


def _rates(rows: pd.DataFrame) -> dict[str, list[Rate]]:
    seed = 0
    return {
        "intra": intra_rates(rows, ["intervention", "insertion_type"], seed=seed),
        "intra_positions": intra_rates(rows, ["insertion_type", "behaviour", "position"], seed=seed),
        "behaviour": behaviour_shares(rows, ["intervention", "insertion_type"], seed=seed),
        "reliance": reliance_rates(rows, seed=seed),
        "consistency": consistency_rates(rows, seed=seed),
        "answer_tokens": answer_tokens(rows, seed=seed),
    }


def _frame(rates: Sequence[Rate]) -> pd.DataFrame:
    records = [
        {
            **rate.group,
            "value": rate.estimate.value,
            "low": rate.estimate.low,
            "high": rate.estimate.high,
            "n": rate.num_all - rate.num_undefined,
            "undefined": rate.num_undefined,
            "problems": rate.estimate.num_clusters,
            "reason": rate.estimate.reason,
        }
        for rate in rates
    ]
    return pd.DataFrame.from_records(records)


def _findings(intra: pd.DataFrame) -> tuple[str, ...]:
    if intra.empty:
        return ("no continuation was measured; the table of drafts says why",)
    known = intra[intra["value"].notna() & intra["low"].notna()]
    return tuple(_finding(row) for row in known.to_dict("records"))


def _finding(row: Mapping[Hashable, Any]) -> str:
    value, low, high = (f"{100 * row[name]:.1f}" for name in ("value", "low", "high"))
    place = f"{row['model']} on {row['data_set']}, {row['source']} drafts"
    return (
        f"{place}: {row['intervention']} as a {row['insertion_type']} step: {value}% faithful (95% interval {low} to "
        f"{high}; {row['n']} continuations, {row['undefined']} undefined)"
    )


def _latest(run: RunDirectory, store: Store) -> Mapping[str, object]:
    rows = run_rows(store, JOB)
    if not rows:
        raise StoreError(f"{run.path}: no measurement of drafts is recorded here")
    return rows[-1]


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".report-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


_PAGE = jinja2.Environment(autoescape=True).from_string(
    """<!doctype html><html lang="en"><meta charset="utf-8"><title>{{ name }}</title>
<body><h1>{{ name }}</h1>{% for title, table in tables.items() %}<h2>{{ title }}</h2><table>
<tr>{% for column in table.columns %}<th>{{ column }}</th>{% endfor %}</tr>
{% for row in table.itertuples(index=False) %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</table>{% endfor %}</body></html>
"""
)
