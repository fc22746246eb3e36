"""Numbers and times as a reader sees them. Undefined is a dash."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from fairwitness.text.numbers import shown_rate

NOTHING = "–"
MINUS = "−"


def is_missing(value: Any) -> bool:
    """Whether a cell of a frame holds no value: None, NaN or NA."""
    return value is None or str(value) == "<NA>" or (isinstance(value, float) and math.isnan(value))


def percent(value: Any, digits: int = 1) -> str:
    """A share as a percentage, without the percent sign: 0.571 is `57.1`."""
    return NOTHING if is_missing(value) else decimal(100 * float(value), digits)


def decimal(value: Any, digits: int = 2) -> str:
    """A number with fixed decimals and a typographic minus; what rounds to zero has no sign."""
    if is_missing(value):
        return NOTHING
    shown = f"{float(value):.{digits}f}"
    return _minus(shown) if float(shown) else f"{0:.{digits}f}"


def signed(value: Any, digits: int = 2) -> str:
    """As `decimal`, with a plus where the number is positive."""
    shown = decimal(value, digits)
    return shown if shown.startswith((MINUS, NOTHING)) or not float(shown) else f"+{shown}"


def rate(lr: Any) -> str:
    """A learning rate in short scientific notation: 3e-5."""
    return NOTHING if is_missing(lr) else shown_rate(float(lr))


def count(value: Any) -> str:
    """A whole number with thousands separated."""
    return NOTHING if is_missing(value) else f"{int(value):,}"


def figure(value: Any) -> str:
    """A number of any size with four significant digits; other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING if is_missing(value) else str(value)
    return NOTHING if is_missing(value) else _minus(f"{value:.4g}")


def moment(value: datetime | None) -> str:
    """A time to the minute, in UTC."""
    return NOTHING if is_missing(value) or value is None else f"{value:%Y-%m-%d %H:%M} UTC"


def duration(start: datetime | None, end: datetime | None) -> str:
    """Time between two moments, as hours, minutes and seconds."""
    if start is None or end is None:
        return NOTHING
    seconds = round((end - start).total_seconds())
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def plural(number: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _minus(shown: str) -> str:
    return shown.replace("-", MINUS)
