"""Waits, dates and budgets, without a server."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from fairwitness.judges.budget import Budget, Prices
from fairwitness.judges.wire import Trouble, retry_after_s, status_trouble, wait_s

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:30 GMT"}, 90.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


def test_waits_double_up_to_the_limit() -> None:
    waits = [wait_s(attempt, Trouble("x"), max_wait_s=10, rng=random.Random(0)) for attempt in range(1, 9)]
    assert all(wait is not None for wait in waits)
    for attempt, wait in enumerate(waits, start=1):
        longest = min(10.0, 0.5 * 2 ** (attempt - 1))
        assert 0.75 * longest <= (wait or 0) <= 10
    assert wait_s(10_000, Trouble("x"), max_wait_s=10, rng=random.Random(0)) == 10


def test_the_servers_wait_goes_first() -> None:
    asked = Trouble("x", retry_after_s=42)
    assert wait_s(1, asked, max_wait_s=50, rng=random.Random(0)) == 42
    assert wait_s(1, asked, max_wait_s=41, rng=random.Random(0)) is None


@pytest.mark.parametrize(
    ("status", "code", "is_passing", "is_fatal"),
    [
        (400, None, False, False),
        (401, None, False, True),
        (404, "model_not_found", False, True),
        (408, None, True, False),
        (409, None, True, False),
        (429, "rate_limit_exceeded", True, False),
        (429, "insufficient_quota", False, True),
        (500, None, True, False),
        (529, None, True, False),
    ],
)
def test_what_a_status_means(status: int, code: str | None, is_passing: bool, is_fatal: bool) -> None:
    found = status_trouble(status, code, "said", {}, NOW)
    assert (found.is_passing, found.is_fatal) == (is_passing, is_fatal)
    assert found.message.startswith(f"HTTP {status}: said")


def test_prices_are_per_million_tokens() -> None:
    prices = Prices(0.15, 0.6)
    assert prices.cost(1_000_000, 500_000) == pytest.approx(0.45)
    assert prices.bound("ä" * 100, 10) == pytest.approx(prices.cost(264, 10))


def test_the_budget_waits_for_requests_under_way_and_then_stops_for_good() -> None:
    budget = Budget(10.0)
    assert [budget.ask(4.0), budget.ask(4.0), budget.ask(4.0)] == ["go", "go", "wait"]
    budget.settle(4.0, 1.0)
    assert (budget.ask(4.0), budget.spent) == ("go", 1.0)
    budget.settle(4.0, 4.0)
    budget.settle(4.0, 4.0)
    assert budget.spent == 9.0
    assert [budget.ask(1.5), budget.ask(0.5)] == ["stop", "stop"]
    assert Budget(None).ask(1e9) == "go"
