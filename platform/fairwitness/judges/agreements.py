"""Agreement of the judges of a run, and of files of judgements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fairwitness.errors import DataError
from fairwitness.judges.agreement import Agreement, cohens_kappa
from fairwitness.problems.draws import item_rng

PUBLISHED_VERDICTS = {"yes": "same", "no": "different", "unclear": "unclear"}
"""First word of a published reply to "Do the reasoning chains argue for the same answer option?" → verdict."""


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
        paths: Two JSON-lines files; each line has `instance_id` and `response`, whose first word is Yes, No or Unclear.
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


def read_verdicts(path: Path) -> dict[str, str]:
    """instance_id → verdict of a file of published judgements.

    Raises:
        DataError: The file cannot be read, a line is not a judgement, or an instance_id is there twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); give a JSON-lines file of judgements") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        item, verdict = _judgement(path, number, line)
        if item in found:
            raise DataError(f"{path}:{number}: instance_id {item!r} is there twice; remove one")
        found[item] = verdict
    return found


def _judgement(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        item, words = str(row["instance_id"]), str(row["response"]).split()
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}:{number}: no JSON object with instance_id and response ({error})") from error
    verdict = PUBLISHED_VERDICTS.get(words[0].strip(".,:;!*\"'").lower()) if words else None
    if verdict is None:
        raise DataError(f"{path}:{number}: response must begin with Yes, No or Unclear, not {' '.join(words)[:40]!r}")
    return item, verdict


def _names(rows: pd.DataFrame) -> dict[str, str]:
    """judge_key → name, with part of the key where two judges have one name."""
    names = {str(key): str(name) for key, name in zip(rows["judge_key"], rows["judge"], strict=True)}
    taken = list(names.values())
    return {key: f"{name} [{key[:6]}]" if taken.count(name) > 1 else name for key, name in names.items()}
