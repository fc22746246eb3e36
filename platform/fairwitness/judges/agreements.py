"""Agreement of the judges of a run, and of files of judgements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fairwitness.judges.agreement import Agreement, cohens_kappa
from fairwitness.judges.published import read_verdicts
from fairwitness.problems.draws import item_rng


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
