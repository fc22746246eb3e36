"""Numbers as a reader sees them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from fairwitness.report.format import (
    count,
    decimal,
    duration,
    figure,
    is_missing,
    moment,
    percent,
    plural,
    rate,
    signed,
)

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, float("nan"), np.float64("nan"), pd.NA])
def test_undefined_is_a_dash_never_a_zero(value: object) -> None:
    assert is_missing(value)
    assert {f(value) for f in (percent, decimal, signed, rate, count, figure)} == {"–"}


@pytest.mark.parametrize(
    ("lr", "shown"), [(3e-05, "3e-5"), (0.0001, "1e-4"), (1.5e-4, "1.5e-4"), (1e-10, "1e-10"), (0.5, "5e-1")]
)
def test_rates_are_short(lr: float, shown: str) -> None:
    assert rate(lr) == shown


def test_signs() -> None:
    assert (signed(0.125), signed(-0.25), signed(0.001), signed(-0.001)) == ("+0.12", "−0.25", "0.00", "0.00")
    assert decimal(-0.5, 1) == "−0.5"


def test_percent_and_counts() -> None:
    assert percent(0.5714) == "57.1"
    assert (percent(-1e-5), percent(-0.012)) == ("0.0", "−1.2")
    assert count(12345.0) == "12,345"
    assert (plural(1, "problem"), plural(0, "problem"), plural(1200, "problem")) == (
        "1 problem",
        "0 problems",
        "1,200 problems",
    )


def test_figures_of_any_kind() -> None:
    assert [figure(v) for v in (13.862943611, 1e-7, True, "equal", 20)] == ["13.86", "1e−07", "True", "equal", "20"]


def test_times() -> None:
    assert moment(NOON) == "2026-11-30 12:00 UTC"
    assert moment(None) == "–"
    seconds = [5, 130, 3600 * 17 + 60 * 40]
    assert [duration(NOON, NOON + timedelta(seconds=s)) for s in seconds] == ["5 s", "2 min 10 s", "17 h 40 min"]
    assert duration(NOON, None) == "–"
