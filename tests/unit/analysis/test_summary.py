"""Ratings against ff-soft: scipy on the steps' means, undefined cases, and what the terminal shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from fairwitness.analysis.ratings import bin_of, describe_summary, summarise_ratings


def frame(num: int = 24, raters: int = 1, models: int = 1, steps_per_problem: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    rows: list[dict[str, Any]] = []
    for model in range(models):
        for number in range(num):
            shift = float(rng.uniform(-0.6, 1.0))
            for rater in range(raters):
                rows.append(
                    {
                        "item_key": f"i{model}-{number}", "model": f"m{model}", "data_set": "d", "rater": f"r{rater}",
                        "problem_id": f"p{number // steps_per_problem}", "ff_soft": shift, "bin": bin_of(shift),
                        "rating": int(rng.integers(1, 6)),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def test_one_rating_a_step_is_plain_pearson_and_spearman() -> None:
    ratings = frame()
    (found,) = summarise_ratings(ratings)
    oracle = scipy_stats.pearsonr(ratings["rating"], ratings["ff_soft"])
    assert found.pearson.value == pytest.approx(oracle.statistic)
    assert found.pearson.p_value == pytest.approx(oracle.pvalue)
    assert (found.pearson.low, found.pearson.high) == pytest.approx(tuple(oracle.confidence_interval()))
    assert found.spearman.value == pytest.approx(scipy_stats.spearmanr(ratings["rating"], ratings["ff_soft"]).statistic)
    assert (found.label, found.num_ratings, found.num_steps) == ("m0 on d", 24, 24)


def test_a_step_of_several_raters_counts_once_by_its_mean() -> None:
    ratings = frame(raters=3)
    (found,) = summarise_ratings(ratings)
    steps = ratings.groupby("item_key").agg({"rating": "mean", "ff_soft": "first"})
    assert found.pearson.value == pytest.approx(scipy_stats.pearsonr(steps["rating"], steps["ff_soft"]).statistic)
    assert (found.num_raters, found.num_ratings, found.num_steps) == (3, 72, 24)


def test_means_by_bin_are_those_of_pandas() -> None:
    ratings = frame(num=40)
    (found,) = summarise_ratings(ratings)
    expected = ratings.groupby("bin")["rating"].mean()
    assert {name: mean.value for name, mean in found.means.items() if mean.value is not None} == pytest.approx(
        expected.to_dict()
    )


def test_steps_of_one_problem_are_resampled_together() -> None:
    (found,) = summarise_ratings(frame(steps_per_problem=2))
    assert (found.pearson.interval, found.pearson.num_clusters) == ("bootstrap", 12)
    assert summarise_ratings(frame(steps_per_problem=2).sample(frac=1, random_state=1)) == [found]


def test_all_together_comes_before_each_model() -> None:
    found = summarise_ratings(frame(models=2))
    assert [one.label for one in found] == ["all", "m0 on d", "m1 on d"]
    assert [one.num_steps for one in found] == [48, 24, 24]
    # Two models answered the same 24 problems.
    assert found[0].pearson.num_clusters == 24


def test_undefined_cases() -> None:
    assert summarise_ratings(frame().iloc[:0]) == []
    constant = frame().assign(rating=3)
    (found,) = summarise_ratings(constant)
    assert (found.pearson.value, found.pearson.reason) == (None, "the first list is constant")
    lines = list(describe_summary(found))
    assert "  Pearson of rating and ff-soft: undefined (the first list is constant)" in lines
    without = frame()
    without.loc[:4, "ff_soft"] = np.nan
    (found,) = summarise_ratings(without)
    assert (found.num_steps, found.num_undefined) == (19, 5)
    assert "  5 rated steps have no ff-soft and are left out" in list(describe_summary(found))
