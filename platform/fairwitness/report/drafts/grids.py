"""The figures as tables for CSV files: unrounded, with n, intervals and the reason where one is undefined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from fairwitness.analysis.draft_figures import AVERAGE, Comparison, DraftFigures, ReaderAgreement
from fairwitness.analysis.drafts import PLACE, DraftCounts, Rate
from fairwitness.analysis.frames import Results, continuations, drafts, rate_columns, rates_frame
from fairwitness.report.format import NOTHING, decimal, percent
from fairwitness.report.paper.exhibit import Cell, Grid, Head, interval, words

Key = tuple[str, ...]
_WAYS = {"standard": "", "immediate": " (IM)"}
_DASH = Cell(NOTHING, title="nothing was measured here")
PLACE_HEADS = tuple(Head(name, is_text=True) for name in ("Model", "Data set", "Drafts"))


def shown_name(name: str) -> str:
    """A name of a table's column for people: `shift_mapping` is `shift mapping`."""
    return name.replace("_", " ")


def rate_cell(rate: Rate | None, *, form: Callable[[Any], str] = percent, mark: str = "") -> Cell:
    """A rate with its interval, n and the number of undefined ones; a dash where there is none."""
    if rate is None:
        return _DASH
    counts = f"n = {rate.num_known:,}" + (f", {rate.num_undefined:,} undef." if rate.num_undefined else "")
    title = (
        f"{rate.num_all:,} measured, {rate.num_truncated:,} of them truncated; {rate.estimate.num_clusters:,} problems"
    )
    if rate.estimate.value is None:
        return Cell(NOTHING, (counts,), f"{rate.estimate.reason}; {title}", mark)
    return Cell(form(rate.estimate.value), (interval(rate.estimate, form), counts), title, mark)


whole = partial(decimal, digits=0)
"""Writes a mean number of tokens."""


def table_1(found: DraftFigures) -> Grid:
    """δ_intra by intervention and type of step, averaged over positions."""
    columns = _ordered(found.intra, "intervention", "insertion_type")
    names = list(dict.fromkeys(name for name, _ in columns))
    types = {name: [one for other, one in columns if other == name] for name in names}
    heads = [*PLACE_HEADS, *(Head(shown_name(name), max(1, len(types[name]))) for name in names)]
    below = [*(Head("", is_text=True) for _ in PLACE), *(Head(one or "") for name in names for one in types[name])]
    return Grid((tuple(heads), tuple(below)), _lines(found.intra, columns, ("intervention", "insertion_type")))


def table_1_detail(found: DraftFigures) -> Grid:
    """δ_intra by everything: a line per model, data set, source, intervention and type of step."""
    parts = {"": found.intra, "position": found.positions, "behaviour": found.behaviours}
    named: dict[Key, dict[str, Rate]] = {}
    for column, rates in parts.items():
        for rate in rates:
            if rate.group["intervention"] != AVERAGE:
                named.setdefault(_key(rate), {})[rate.group.get(column, "all")] = rate
    for rate in found.corrects:
        named[_key(rate)]["corrects"] = rate
    wanted = ("all", "initial", "middle", "end", "correction", "following", "corrects")
    groups = (Head("", is_text=True), Head(""), Head("By position", 3), Head("By behaviour", 2), Head(""))
    heads = (Head("Inserted step", is_text=True), *(Head(name) for name in wanted))
    rows: list[tuple[Cell, ...]] = []
    for place in sorted({key[:3] for key in named}):
        rows.append((words("{} on {}, {} drafts".format(*place)),))
        steps = sorted((key[3:] for key in named if key[:3] == place), key=lambda step: column_rank(*step))
        for name, insertion in steps:
            cells = named[(*place, name, insertion)]
            shown = (rate_cell(cells.get(column)) for column in wanted)
            rows.append((words(f"{shown_name(name)}, {insertion}"), *shown))
    return Grid((groups, heads), tuple(rows))


def by_conclusion(rates: Sequence[Rate], *, form: Callable[[Any], str] = percent) -> Grid:
    """Tables 3 and 6: a column per kind of conclusion."""
    columns = _ordered(rates, "intervention")
    heads = [*PLACE_HEADS, *(Head(name) for (name,) in columns)]
    return Grid((tuple(heads),), _lines(rates, columns, ("intervention",), form))


def table_4(rates: Sequence[Rate]) -> Grid:
    """Consistency: a column per kind of conclusion and way of answering."""
    columns = _ordered(rates, "intervention", "answering")
    heads = [*PLACE_HEADS, *(Head(f"{name}{_WAYS.get(way, '')}") for name, way in columns)]
    return Grid((tuple(heads),), _lines(rates, columns, ("intervention", "answering")))


def sources_grid(sources: Mapping[str, Sequence[Comparison]]) -> Grid | None:
    """Own beside external drafts, a line per rate; None where no rate is there on both."""
    found = [(name, one) for name, comparisons in sources.items() for one in comparisons]
    rows: list[tuple[Cell, ...]] = []
    for model, data_set in sorted({(one.group["model"], one.group["data_set"]) for _, one in found}):
        rows.append((words(f"{model} on {data_set}"),))
        own = [pair for pair in found if (pair[1].group["model"], pair[1].group["data_set"]) == (model, data_set)]
        # The measures keep their order, their columns get that of the tables.
        rows += [
            _source_line(name, one) for name, one in sorted(own, key=lambda pair: _source_rank(list(sources), *pair))
        ]
    heads = [Head(name, is_text=True) for name in ("Measure", "Of what")]
    heads += [Head(name) for name in ("Own drafts", "External drafts", "Relative difference")]
    return Grid((tuple(heads),), tuple(rows)) if rows else None


def _source_line(name: str, one: Comparison) -> tuple[Cell, ...]:
    form = whole if name == "answer tokens" else percent
    relative = NOTHING if one.relative is None else f"{percent(one.relative, 0)}%"
    shown = Cell(relative, ("over 10%",) if one.differs else (), mark="differs" if one.differs else "")
    what = ", ".join(shown_name(part) for part in _what(one))
    return words(name), words(what), rate_cell(one.own, form=form), rate_cell(one.external, form=form), shown


def _source_rank(names: Sequence[str], name: str, one: Comparison) -> tuple[int, list[tuple[int, str]]]:
    return names.index(name), column_rank(*_what(one))


def _what(one: Comparison) -> list[str]:
    return [value for name, value in one.group.items() if name not in PLACE]


def agreement_grid(agreements: Sequence[ReaderAgreement]) -> Grid:
    """Judge and rules: a line per question and group."""
    heads = [*PLACE_HEADS, Head("Question", is_text=True), Head("Readers", is_text=True)]
    heads += [Head("Both"), Head("Equal, %"), Head("Cohen's κ")]
    return Grid((tuple(heads),), tuple(_agreement_line(one) for one in agreements))


def _agreement_line(one: ReaderAgreement) -> tuple[Cell, ...]:
    found, kappa = one.pair.agreement, one.pair.agreement.kappa
    only = ", ".join(
        f"{number:,} {name} only" for name, number in zip(one.pair.judges, one.pair.num_only, strict=True) if number
    )
    chance = (f"by chance {percent(found.expected)}",) if found.expected is not None else ()
    shown = Cell(decimal(kappa.value), (interval(kappa, decimal),)) if kappa.value is not None else Cell(
        NOTHING, (kappa.reason or "",)
    )  # fmt: skip
    return (
        *(words(one.group[name]) for name in PLACE),
        words("behaviour" if one.pair.kind == "behaviour" else "ans(·)"),
        words(" / ".join(one.pair.judges)),
        Cell(f"{found.num_items:,}", (only,) if only else ()),
        Cell(percent(found.observed), chance),
        shown,
    )


def _key(rate: Rate) -> Key:
    return tuple(rate.group[name] for name in (*PLACE, "intervention", "insertion_type"))


def column_rank(*key: str) -> list[tuple[int, str]]:
    """Sorts columns: those of the paper first and in its order, the average last."""
    rank = {"shift_mapping": 0, "corrupt_option": 1, "direct": 2, "plausible": 3, AVERAGE: 9}
    rank |= {"continue": 0, "backtrack": 1, "standard": 0, "immediate": 1}
    return [(rank.get(part, 5), part) for part in key]


def _ordered(rates: Sequence[Rate], *columns: str) -> list[Key]:
    """The columns of a table that have a rate."""
    keys = {tuple(rate.group.get(name, "") for name in columns) for rate in rates}
    return sorted(keys, key=lambda key: column_rank(*key))


def _lines(
    rates: Sequence[Rate], columns: Sequence[Key], names: Sequence[str], form: Callable[[Any], str] = percent
) -> tuple[tuple[Cell, ...], ...]:
    found: dict[Key, dict[Key, Rate]] = {}
    for rate in rates:
        place = tuple(rate.group[name] for name in PLACE)
        found.setdefault(place, {})[tuple(rate.group.get(name, "") for name in names)] = rate
    return tuple(
        (*(words(name) for name in place), *(rate_cell(cells.get(column), form=form) for column in columns))
        for place, cells in sorted(found.items(), key=lambda pair: (pair[0][1], pair[0][0], pair[0][2]))
    )


def frames(results: Results) -> dict[str, pd.DataFrame]:
    """Every table, by the name of its file; those without a row are left out."""
    found = results.draft_figures
    rates = {
        "table_1": found.intra,
        "table_1_positions": found.positions,
        "table_1_behaviours": found.behaviours,
        "table_1_all": found.crossed,
        "table_3": found.reliance,
        "table_4": found.consistency,
        "table_6": found.tokens,
        "figures_4_6": found.figure_4,
        "figures_7_8": found.corrects,
    }
    made = {name: rates_frame(group) for name, group in rates.items()} | {
        "sources": sources_frame(found.sources),
        "agreement": agreement_frame(found.agreements or []),
        "outcomes": found.outcomes,
        "draft_counts": _counts_frame(found.drafts),
        "without_verdict": found.lost,
        "drafts": drafts(results),
        "items": continuations(results),
    }
    return {name: frame for name, frame in made.items() if len(frame)}


def sources_frame(sources: Mapping[str, Sequence[Comparison]]) -> pd.DataFrame:
    """A row per rate that there is on own and on external drafts."""
    records = [
        {"measure": name, **one.group}
        | {f"own_{key}": value for key, value in rate_columns(one.own).items()}
        | {f"external_{key}": value for key, value in rate_columns(one.external).items()}
        | {"relative_difference": one.relative, "over_a_tenth": one.differs}
        for name, comparisons in sources.items()
        for one in comparisons
    ]
    return pd.DataFrame.from_records(records)


def agreement_frame(agreements: Sequence[ReaderAgreement]) -> pd.DataFrame:
    """A row per question and group."""
    records = [
        {
            **one.group,
            "question": one.pair.kind,
            **dict(zip(("first", "second"), one.pair.judges, strict=True)),
            "n": one.pair.agreement.num_items,
            **dict(zip(("num_first_only", "num_second_only"), one.pair.num_only, strict=True)),
            "equal": one.pair.agreement.observed,
            "equal_by_chance": one.pair.agreement.expected,
            "kappa": one.pair.agreement.kappa.value,
            "kappa_low": one.pair.agreement.kappa.low,
            "kappa_high": one.pair.agreement.kappa.high,
            "num_problems": one.pair.agreement.kappa.num_clusters,
            "reason": one.pair.agreement.kappa.reason,
        }
        for one in agreements
    ]
    return pd.DataFrame.from_records(records)


def _counts_frame(counts: Sequence[DraftCounts]) -> pd.DataFrame:
    records = [
        {**one.group, "num_all": one.num_all}
        | {f"num_{name}": one.statuses.get(name, 0) for name in ("ok", "skipped", "failed")}
        | {"num_irregular": one.num_irregular}
        | {f"num_{name}": number for name, number in one.irregular.items()}
        | {f"num_ended_by_{name}": number for name, number in one.finishes.items()}
        | {"num_other_answer": one.num_other_answer, "num_no_answer": one.num_no_answer}
        for one in counts
    ]
    frame = pd.DataFrame.from_records(records)
    numbers = [name for name in frame.columns if name.startswith("num_")]
    return frame.fillna(dict.fromkeys(numbers, 0)).astype(dict.fromkeys(numbers, int))
