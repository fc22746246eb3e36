"""The paper's own figures: as printed, consistent with one another, and found by the paper's names only."""

from __future__ import annotations

import csv
from collections import Counter
from importlib import resources

import pytest
from scipy.stats import pearsonr

from fairwitness.problems.load import DEFINITIONS
from fairwitness.report.paper.data import DATA_SETS, MODELS, PEARSON, published


def rows() -> list[dict[str, str]]:
    text = resources.files("fairwitness.report.paper").joinpath("published.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_every_table_is_complete() -> None:
    counts = Counter(row["table"] for row in rows())
    # Table 1: three measures and the base; 8: 93 cells of three measures; 11 leaves one data set out.
    assert counts == {
        **{"table_1": 64, "table_2": 40, "table_3": 20, "table_5": 40, "table_6": 20},
        **{"table_8": 279, "table_11": 16},
    }
    assert {row["model"] for row in rows()} == set(MODELS.values())
    assert {row["data_set"] for row in rows()} == {*DATA_SETS, ""}
    places = [tuple(row.values())[:-1] for row in rows()]
    assert len(set(places)) == len(places)


def test_the_published_cells_give_the_published_correlation() -> None:
    cells: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows():
        if row["table"] == "table_8":
            place = (row["model"], row["data_set"], row["lr"])
            cells.setdefault(place, {})[row["measure"]] = float(row["value"])
    found = pearsonr([cell["efficacy"] for cell in cells.values()], [cell["ff_hard"] for cell in cells.values()])
    assert len(cells) == 93
    assert found.statistic == pytest.approx(PEARSON, abs=6e-4)
    assert found.pvalue < 1e-4


def test_figures_are_found_by_name() -> None:
    assert published("table_2", "LLaMA-8B", "truthfulqa", "ff_hard") == "68.5"
    assert published("table_2", "meta-llama/Meta-Llama-3-8B-Instruct", "truthfulqa", "ff_hard") == "68.5"
    assert published("table_8", "Phi-3", "truthfulqa", "specificity", 1e-3) == "59.0"
    assert published("table_8", "Phi-3", "truthfulqa", "specificity", 5e-4) is None
    assert published("table_1", "Mistral-2", "", "capability_before") == "59.0"
    assert published("table_11", "Phi-3", "truthfulqa", "step_flip") is None
    assert published("table_2", "own", "truthfulqa", "ff_hard") is None
    assert published("table_2", "LLaMA-8B", "organism", "ff_hard") is None


def test_the_papers_data_sets_are_ours() -> None:
    assert set(DATA_SETS) <= set(DEFINITIONS)
