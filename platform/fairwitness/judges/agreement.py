"""Agreement of the judges of a run, and of files of judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairwitness.judges.published import read_verdicts
from fairwitness.problems.draws import item_rng
from fairwitness.stats.bootstrap import Estimate, Floats, cluster_codes, percentile_interval

ONE_VERDICT = "both judges always give the same one verdict, so agreement by chance is certain"


@dataclass(frozen=True)
class Agreement:
    """Agreement of two judges on the items that both judged.

    Attributes:
        num_items: Items with two verdicts.
        observed: Share of items with equal verdicts; None without items.
        expected: Share that chance would give with each judge's own frequencies; None without items.
        kappa: (observed - expected)/(1 - expected), -1 to 1, with its interval.
    """

    num_items: int
    observed: float | None
    expected: float | None
    kappa: Estimate


def cohens_kappa(
    verdicts_a_N: Sequence[str],
    verdicts_b_N: Sequence[str],
    *,
    rng: np.random.Generator,
    clusters_N: Sequence[Any] | None = None,
) -> Agreement:
    """Cohen's kappa with a percentile interval over resampled items, or over clusters of them.

    Args:
        verdicts_a_N: One judge's verdicts.
        verdicts_b_N: The other's on the same items, in the same order.
        rng: Source of the resamples.
        clusters_N: What belongs together, for example the problem of each item; None where items are independent.

    Returns:
        Kappa is undefined without items and where both judges only ever give the same one verdict. Resamples in which
        that happens are left out of the interval.

    Raises:
        ValueError: The lengths differ.

    Source: Cohen 1960, *A coefficient of agreement for nominal scales*.
    """
    num_items = len(verdicts_a_N)
    if len(verdicts_b_N) != num_items or (clusters_N is not None and len(clusters_N) != num_items):
        raise ValueError(f"{num_items} and {len(verdicts_b_N)} verdicts: one of each judge per item is needed")
    if num_items == 0:
        return Agreement(0, None, None, Estimate(None, None, None, 0.0, 0.0, 0, "no item was judged by both"))
    counts_CVV = _counts(verdicts_a_N, verdicts_b_N, range(num_items) if clusters_N is None else clusters_N)
    num_clusters = len(counts_CVV)
    observed_1, expected_1 = _shares(counts_CVV.sum(axis=0, keepdims=True))
    observed, expected = float(observed_1[0]), float(expected_1[0])
    top, bottom = observed - expected, 1 - expected
    if bottom <= 0:
        kappa = Estimate(None, None, None, top, 0.0, num_clusters, ONE_VERDICT)
    elif num_clusters == 1:
        kappa = Estimate(top / bottom, None, None, top, bottom, 1, "one item or problem gives no interval")
    else:
        low, high = percentile_interval(lambda weights: _kappas(weights, counts_CVV), num_clusters, rng=rng)
        kappa = Estimate(top / bottom, low, high, top, bottom, num_clusters, None, "bootstrap")
    return Agreement(num_items, observed, expected, kappa)


def _counts(a_N: Sequence[str], b_N: Sequence[str], clusters_N: Sequence[Any] | range) -> Floats:
    known = {verdict: number for number, verdict in enumerate(sorted({*a_N, *b_N}))}
    codes_N = cluster_codes(np.asarray(clusters_N))
    counts_CVV = np.zeros((int(codes_N.max()) + 1, len(known), len(known)))
    for code, a, b in zip(codes_N.tolist(), a_N, b_N, strict=True):
        counts_CVV[code, known[a], known[b]] += 1
    return counts_CVV


def _shares(counts_RVV: Floats) -> tuple[Floats, Floats]:
    total_R = counts_RVV.sum(axis=(1, 2))
    observed_R = np.trace(counts_RVV, axis1=1, axis2=2) / total_R
    expected_R = (counts_RVV.sum(axis=2) * counts_RVV.sum(axis=1)).sum(axis=1) / total_R**2
    return observed_R, expected_R


def _kappas(weights_RC: Floats, counts_CVV: Floats) -> Floats:
    observed_R, expected_R = _shares(np.tensordot(weights_RC, counts_CVV, axes=1))
    kappa_R: Floats = np.full(len(weights_RC), np.nan)
    defined_R = expected_R < 1
    kappa_R[defined_R] = (observed_R[defined_R] - expected_R[defined_R]) / (1 - expected_R[defined_R])
    return kappa_R


class PairAgreement(NamedTuple):
    """Two judges on the items that both judged.

    Attributes:
        kind: The question.
        judges: Names of both.
        agreement: How far they agree.
        num_only: Items that only the first, and only the second, has a verdict on.
    """

    kind: str
    judges: tuple[str, str]
    agreement: Agreement
    num_only: tuple[int, int]


def pair_agreements(judgements: pd.DataFrame, *, seed: int = 0) -> list[PairAgreement]:
    """Agreement of all pairs of judges, in the order of kind and name; intervals draw whole problems.

    Args:
        judgements: Rows of `judgements`; those that are not ok have no verdict and do not count.
        seed: Seed of the resamples.
    """
    rows = judgements[judgements["status"] == "ok"]
    found = []
    for kind, of_kind in rows.groupby("kind", sort=True):
        names = _names(of_kind)
        by_judge = {key: part.set_index("item_key").sort_index() for key, part in of_kind.groupby("judge_key")}
        for a, b in combinations(sorted(names, key=lambda key: (names[key], key)), 2):
            shared = by_judge[a].index.intersection(by_judge[b].index)
            first, second = by_judge[a].loc[shared], by_judge[b].loc[shared]
            agreement = cohens_kappa(
                first["verdict"].tolist(),
                second["verdict"].tolist(),
                rng=item_rng(seed, str(kind), a, b),
                clusters_N=(first["data_set"] + "\0" + first["problem_id"]).tolist(),
            )
            only = (len(by_judge[a]) - len(shared), len(by_judge[b]) - len(shared))
            found.append(PairAgreement(str(kind), (names[a], names[b]), agreement, only))
    return found


def file_agreement(paths: Sequence[Path], *, seed: int = 0) -> PairAgreement:
    """Agreement of two files of judgements in the form that FUR's authors published.

    Args:
        paths: Two JSON-lines files, see `read_verdicts`.
        seed: Seed of the resamples.

    Raises:
        DataError: A file cannot be read, or a line is not a judgement; the message names it.
    """
    first, second = (read_verdicts(path) for path in paths)
    shared = [item for item in first if item in second]
    agreement = cohens_kappa(
        [first[item] for item in shared],
        [second[item] for item in shared],
        rng=np.random.default_rng(seed),
        clusters_N=[item.rpartition("_")[0] for item in shared],
    )
    only = (len(first) - len(shared), len(second) - len(shared))
    return PairAgreement("published", (paths[0].name, paths[1].name), agreement, only)


def _names(rows: pd.DataFrame) -> dict[str, str]:
    """judge_key → name, with part of the key where two judges have one name."""
    names = {str(key): str(name) for key, name in zip(rows["judge_key"], rows["judge"], strict=True)}
    taken = list(names.values())
    return {key: f"{name} [{key[:6]}]" if taken.count(name) > 1 else name for key, name in names.items()}
