"""The figures as tables for the page, laid out as in the paper: a line per model, data set and source of drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairwitness.drafts.readers_agree import ReaderAgreement
from fairwitness.drafts.results import PLACE, Rate
from fairwitness.drafts.sources import Comparison
from fairwitness.report.drafts.measured import AVERAGE, Measured
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


def whole(value: Any) -> str:
    """A mean number of tokens."""
    return decimal(value, 0)


def table_1(found: Measured) -> Grid:
    """δ_intra by intervention and type of step, averaged over positions."""
    columns = _ordered(found.intra, "intervention", "insertion_type")
    names = list(dict.fromkeys(name for name, _ in columns))
    types = {name: [one for other, one in columns if other == name] for name in names}
    heads = [*PLACE_HEADS, *(Head(shown_name(name), max(1, len(types[name]))) for name in names)]
    below = [*(Head("", is_text=True) for _ in PLACE), *(Head(one or "") for name in names for one in types[name])]
    return Grid((tuple(heads), tuple(below)), _lines(found.intra, columns, ("intervention", "insertion_type")))


def table_1_detail(found: Measured) -> Grid:
    """δ_intra by everything: a line per model, data set, source, intervention and type of step."""
    parts = {"": found.intra, "position": found.positions, "behaviour": found.behaviours}
    named: dict[Key, dict[str, Rate]] = {}
    for column, rates in parts.items():
        for rate in rates:
            if rate.group["intervention"] != AVERAGE:
                named.setdefault(_key(rate), {})[rate.group.get(column, "all")] = rate
    for rate in found.corrects:
        named[_key(rate)]["corrects"] = rate
    wanted = ["all", "initial", "middle", "end", "correction", "following", "corrects"]
    heads = [*PLACE_HEADS, Head("Inserted step", is_text=True), Head("All")]
    groups = [*(Head("", is_text=True) for _ in range(4)), Head(""), Head("By position", 3), Head("By behaviour", 2)]
    heads += [Head(name) for name in ("initial", "middle", "end", "correction", "following")]
    rows = [
        (*(words(name) for name in key[:3]), words(f"{shown_name(key[3])}, {key[4]}"),
         *(rate_cell(cells.get(name)) for name in wanted))
        for key, cells in sorted(named.items())
    ]  # fmt: skip
    return Grid(((*groups, Head("")), (*heads, Head("Corrects"))), tuple(rows))


def by_conclusion(rates: Sequence[Rate], *, form: Callable[[Any], str] = percent) -> Grid:
    """Tables 3 and 6: a column per kind of conclusion."""
    columns = _ordered(rates, "intervention")
    heads = [*PLACE_HEADS, *(Head(name) for (name,) in columns)]
    return Grid((tuple(heads),), _lines(rates, columns, ("intervention",), form))


def table_4(rates: Sequence[Rate]) -> Grid:
    """Consistency: a column per kind of conclusion and way of answering."""
    columns = sorted(
        _ordered(rates, "intervention", "answering"), key=lambda c: (c[0] == AVERAGE, c[0], c[1] != "standard")
    )
    heads = [*PLACE_HEADS, *(Head(f"{name}{_WAYS.get(way, '')}") for name, way in columns)]
    return Grid((tuple(heads),), _lines(rates, columns, ("intervention", "answering")))


def sources_grid(sources: Mapping[str, Sequence[Comparison]]) -> Grid | None:
    """Own beside external drafts, a line per rate; None where no rate is there on both."""
    rows = []
    for name, comparisons in sources.items():
        form = whole if name == "answer tokens" else percent
        for one in comparisons:
            mark = "differs" if one.differs else ""
            relative = NOTHING if one.relative is None else f"{percent(one.relative, 0)}%"
            what = ", ".join(shown_name(value) for key, value in one.group.items() if key not in PLACE)
            rows.append(
                (*(words(one.group[key]) for key in ("model", "data_set")), words(name), words(what),
                 rate_cell(one.own, form=form), rate_cell(one.external, form=form),
                 Cell(relative, ("over 10%",) if one.differs else (), mark=mark))
            )  # fmt: skip
    heads = [Head(name, is_text=True) for name in ("Model", "Data set", "Measure", "Of what")]
    heads += [Head(name) for name in ("Own drafts", "External drafts", "Relative difference")]
    return Grid((tuple(heads),), tuple(rows)) if rows else None


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


def _ordered(rates: Sequence[Rate], *columns: str) -> list[Key]:
    """The columns of a table that have a rate: those of the paper first, the average last."""
    rank = {"shift_mapping": 0, "corrupt_option": 1, AVERAGE: 9, "backtrack": 1, "continue": 0}
    keys = {tuple(rate.group.get(name, "") for name in columns) for rate in rates}
    return sorted(keys, key=lambda key: [(rank.get(part, 5), part) for part in key])


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
