"""What a policy sees of a rate: means by batch, specificity with its interval, and why a rate can never be best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairwitness.fur.search.bench import from_plain, gather, known_rates, level_per_look, to_plain
from fairwitness.fur.search.policies import Evidence
from fairwitness.stats.bootstrap import wilson

BATCHES = [["p", "q"], ["r", "s"]]
AGREE = {"key-p": True, "key-q": True, "key-r": True, "key-s": False}


def row(problem: str, iteration: int = 1, **given: Any) -> dict[str, Any]:
    ok = iteration > 0
    values = {
        "task_key": f"{problem}/0", "cell_key": "cell", "problem_key": f"key-{problem}", "problem_id": problem,
        "cot_step_index": 0, "model": "m", "data_set": "d", "method": "ff2", "lora_rank": None, "lr": 1e-5,
        "attempt": 1, "iteration": iteration, "base_letter": "A", "base_probs": [0.75, 0.25], "predicted_letter": "A",
        "probs": [0.75, 0.25], "letter_mass": 0.9, "flipped": False, "efficacy": 0.5, "specificity": 1.0,
        "num_held_out": 20, "status": "ok" if ok else "failed", "reason": None if ok else "non-finite loss",
    }  # fmt: skip
    return values | given


def seen(*rows: dict[str, Any], num_batches: int = 2, batches: list[list[str]] | None = None) -> Evidence:
    frame = pd.DataFrame(list(rows))
    rng = np.random.default_rng(0)
    return gather(frame, AGREE, lr=1e-5, batches=batches or BATCHES, num_batches=num_batches, rng=rng)


def test_means_by_batch_over_agreeing_problems() -> None:
    rows = [
        row("p", 1, efficacy=0.2, specificity=1.0),
        row("p", 2, efficacy=0.4, specificity=0.9),
        row("q", 1, efficacy=0.6, specificity=0.8),
        row("r", 1, efficacy=1.0, specificity=0.5),
        row("s", 1, efficacy=-9.0, specificity=0.0),
    ]
    both = seen(*rows)
    assert both.efficacies == pytest.approx((1.2 / 3, 2.2 / 4))
    assert both.specificity == pytest.approx(3.2 / 4)
    assert both.is_complete
    first = seen(*rows, num_batches=1)
    assert first.efficacies == pytest.approx((0.4,))
    assert first.specificity == pytest.approx(0.9)
    assert not first.is_complete
    assert both.specificity_low is not None
    assert both.specificity_low <= both.specificity <= both.specificity_high  # type: ignore[operator]


def test_interval_is_wider_for_more_looks() -> None:
    rows = [row(name) for name in "pqr"]
    low, _ = wilson(60, 60, level=level_per_look(2))
    assert seen(*rows).specificity_low == pytest.approx(low)
    assert level_per_look(1) == pytest.approx(0.95)
    assert level_per_look(5) == pytest.approx(0.99)


def test_first_batch_without_counted_problem_says_nothing() -> None:
    evidence = seen(row("s"), row("p"), num_batches=1, batches=[["s"], ["p"]])
    assert evidence == Evidence(1e-5, (None,), None, None, None, is_complete=False)


def test_failed_task_of_a_counted_problem() -> None:
    evidence = seen(row("p"), row("q", 0), row("r"))
    assert evidence.failure == "1 of 3 tasks failed: non-finite loss"
    assert evidence.num_batches == 2
    # Of a problem that does not count, or of a later batch, it is none of the rate's.
    assert seen(row("p"), row("q"), row("s", 0)).failure is None
    assert seen(row("p"), row("q"), row("r", 0), num_batches=1).failure is None


@pytest.mark.parametrize("name", ["efficacy", "specificity"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_measurement_that_is_no_number(name: str, value: float | None) -> None:
    evidence = seen(row("p"), row("q", **{name: value}))
    assert evidence.failure == "1 of 2 measurements are not finite"


def test_plain_values_and_back() -> None:
    evidence = seen(row("p"), row("q"), num_batches=1)
    assert from_plain(to_plain(evidence)) == evidence


def test_longest_trial_of_a_rate_counts() -> None:
    short = Evidence(1e-5, (0.1,), 0.99, 0.98, 1.0, is_complete=False)
    full = Evidence(1e-5, (0.1, 0.2), 0.9, 0.8, 1.0, is_complete=True)
    other = Evidence(3e-5, (0.3,), 0.99, 0.98, 1.0, is_complete=False)
    for order in ([short, full, other], [other, full, short]):
        assert known_rates([to_plain(one) for one in order]) == {1e-5: full, 3e-5: other}
