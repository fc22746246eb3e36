"""What a failed request means: try again, give this prompt up, or give the endpoint up. Pure."""

from __future__ import annotations

import email.utils
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

FIRST_WAIT_S = 0.5
PASSING_STATUSES = frozenset({408, 409, 425, 429})
FATAL_STATUSES = frozenset({401, 403, 404})


class Trouble(NamedTuple):
    """Why an attempt failed.

    Attributes:
        message: One line, without credentials.
        is_passing: Whether another attempt may help.
        is_fatal: Whether no prompt can succeed.
        retry_after_s: Seconds that the server asks to wait; None where it says nothing.
        is_connection: Whether there was no complete response at all.
    """

    message: str
    is_passing: bool = True
    is_fatal: bool = False
    retry_after_s: float | None = None
    is_connection: bool = False


def status_trouble(status: int, code: str | None, message: str, headers: Mapping[str, str], now: datetime) -> Trouble:
    """What an error status means.

    Args:
        status: HTTP status, 400 or above.
        code: The endpoint's own error code, where it names one.
        message: What it says, in one line.
        headers: Headers of the response, with names in lower case.
        now: The time, for a date in `Retry-After`.
    """
    text = f"HTTP {status}" + (f": {message}" if message else "")
    if code == "insufficient_quota":
        return Trouble(f"{text}; the account has no credit left", is_passing=False, is_fatal=True)
    if status in FATAL_STATUSES:
        return Trouble(f"{text}; check base_url, model and the key", is_passing=False, is_fatal=True)
    is_passing = status in PASSING_STATUSES or status >= 500
    return Trouble(text, is_passing=is_passing, retry_after_s=retry_after_s(headers, now) if is_passing else None)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds of `Retry-After-Ms` or `Retry-After` (a number, or a date), at least 0; None where there is none."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    try:
        until = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())


def wait_s(attempt: int, trouble: Trouble, *, max_wait_s: float, rng: random.Random) -> float | None:
    """Seconds until the next attempt: what the server asks for, else doubling from half a second with a random part.

    Args:
        attempt: Attempts made, from 1.
        trouble: Why the last one failed.
        max_wait_s: Longest wait of our own.
        rng: Source of the random part, so that many requests do not come back at the same moment.

    Returns:
        None where the server asks for a wait above `max_wait_s`.
    """
    if trouble.retry_after_s is not None:
        return trouble.retry_after_s if trouble.retry_after_s <= max_wait_s else None
    longest = FIRST_WAIT_S * 2.0 ** min(attempt - 1, 30)
    return min(max_wait_s, longest * rng.uniform(0.75, 1.0))
