"""What a table or figure of the paper report consists of, and how estimates become cells of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fairwitness.report.format import MINUS, NOTHING, percent
from fairwitness.stats.bootstrap import Estimate


@dataclass(frozen=True)
class Cell:
    """One cell of a shown table.

    Attributes:
        text: The figure.
        lines: Small lines below it: interval, n, the paper's own figure.
        title: What a pointer that rests on it shows.
        mark: `chosen`, `grey` or nothing.
        is_text: Whether it is words, set to the left.
    """

    text: str = NOTHING
    lines: tuple[str, ...] = ()
    title: str = ""
    mark: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Head:
    """One cell of a table's head, over `span` columns."""

    text: str
    span: int = 1
    is_text: bool = False


@dataclass(frozen=True)
class Grid:
    """A table as shown: lines of heads, then lines of cells."""

    heads: tuple[tuple[Head, ...], ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Picture:
    """One drawing of a figure.

    Attributes:
        name: Name of its file, without suffix.
        caption: What it shows.
        svg: The drawing.
        texts: Texts that belong to it, each with its heading.
    """

    name: str
    caption: str
    svg: str
    texts: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> int:
        """Width of the drawing in pixels."""
        return int(float(self.svg.split('viewBox="0 0 ', 1)[1].split(" ", 1)[0]))


@dataclass(frozen=True)
class Exhibit:
    """A table or figure.

    Attributes:
        name: Name of its file, for example `table_1`.
        title: The paper's number and what it shows.
        frame: The data behind it, unrounded, with numerators, denominators and intervals.
        grid: The table, where there is one.
        pictures: The drawings.
        notes: What a reader has to know, a sentence each.
        missing: Why it is empty, and which job fills it; None when it is not.
    """

    name: str
    title: str
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    grid: Grid | None = None
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str | None = None


def words(text: str, mark: str = "") -> Cell:
    """A cell of words."""
    return Cell(text, is_text=True, mark=mark)


def value_cell(
    estimate: Estimate, *, form: Callable[[Any], str] = percent, published: str | None = None, mark: str = ""
) -> Cell:
    """A figure with its interval, the number of problems behind it, and the paper's own figure where it is known.

    Args:
        estimate: The figure.
        form: How it is written, by default as a percentage.
        published: The paper's figure, as written there.
        mark: See `Cell`.
    """
    own = () if published is None else (f"paper {published}",)
    if estimate.value is None:
        return Cell(NOTHING, own, estimate.reason or "", mark)
    lines = (interval(estimate, form), f"n = {estimate.num_clusters:,}", *own)
    return Cell(form(estimate.value), lines, estimate.reason or "", mark)


def interval(estimate: Estimate, form: Callable[[Any], str] = percent) -> str:
    """The ends of an interval: `40.0–71.4`."""
    if estimate.low is None or estimate.high is None:
        return "no interval"
    low, high = form(estimate.low), form(estimate.high)
    return f"{low} to {high}" if MINUS in low + high else f"{low}–{high}"
