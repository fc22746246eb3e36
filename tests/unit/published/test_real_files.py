"""The published files themselves, when they are on this machine beside the repository."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fairwitness.analysis.judgements import judged_cells
from fairwitness.analysis.ratings import bin_of, summarise_ratings
from fairwitness.experiment.job import Report
from fairwitness.published.importing import ImportConfig, ImportResult, import_published
from fairwitness.report.build import build_report

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "fur_published"

DIFFERENT = {
    ("LLaMA-3-8B", "arc_challenge"): (97, 119, "81.5"),
    ("LLaMA-3-8B", "openbookqa"): (105, 131, "80.2"),
    ("LLaMA-3-8B", "bbh_sports"): (38, 52, "73.1"),
    ("LLaMA-3-8B", "strategyqa"): (14, 21, "66.7"),
    ("Phi-3", "strategyqa"): (39, 53, "73.6"),
}
"""FUR, Table 3: model and data set to `different`, all, and the share in percent."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportResult:
    if not DATA.is_dir():
        pytest.skip("the published files ../shared/data/fur_published are not here")
    files = sorted(path for path in DATA.rglob("*") if path.is_file())
    config = ImportConfig(name="published", dir=str(tmp_path_factory.mktemp("runs")), files=tuple(map(str, files)))
    return import_published(config, report=lambda path: Report((build_report(path).html,), ()))


def test_every_line_is_taken(imported: ImportResult) -> None:
    assert imported.refused == ()
    assert imported.exit_code == 0
    lines = Counter[str]()
    for file in imported.files:
        lines[file.shape] += len(file.taken)
    assert lines == {"judgements": 376, "mistakes": 600, "study": 76}


def test_shares_of_different_are_those_of_table_3(imported: ImportResult) -> None:
    cells = judged_cells(imported.run.store(create=False), seed=0, cell_keys=imported.cell_keys)
    found = {(cell.model, cell.data_set): cell for cell in cells}
    assert found.keys() == DIFFERENT.keys()
    for place, (number, total, share) in DIFFERENT.items():
        cell = found[place]
        assert (cell.verdicts["different"], cell.num_judged, cell.num_failed) == (number, total, 0)
        assert cell.judge == "gpt-4o-mini-2024-07-18"
        estimate = cell.different
        assert estimate.value is not None
        assert f"{100 * estimate.value:.1f}" == share
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
        assert estimate.num_clusters <= total


def test_correlation_of_the_50_ratings(imported: ImportResult) -> None:
    ratings = imported.run.store(create=False).read("ratings").to_pandas()
    overall = summarise_ratings(ratings)[0]
    assert (overall.num_steps, overall.label) == (50, "all")
    assert overall.pearson.value is not None
    assert round(overall.pearson.value, 4) == 0.0893
    assert overall.pearson.interval == "bootstrap"
    assert ratings["rating"].value_counts().to_dict() == {5: 16, 1: 14, 4: 11, 2: 6, 3: 3}
    # Two bins are not drawn from in the published study.
    assert overall.means["neutral"].value is None


def test_the_published_bin_file_is_one_bin_of_ours(imported: ImportResult) -> None:
    (file,) = [file for file in imported.files if file.path.name.endswith("high_bin.csv")]
    assert {bin_of(taken.line.dp) for taken in file.taken} == {"high"}  # type: ignore[union-attr]


def test_mistake_files_give_problems_and_segmented_cots(imported: ImportResult) -> None:
    store = imported.run.store(create=False)
    cots = store.read("cots").to_pandas()
    with_text = cots[cots["status"] == "ok"]
    counts = with_text.groupby(["model", "data_set"]).size().to_dict()
    assert counts["LLaMA-3-8B", "bbh_sports"] == 93
    assert counts["Phi-3", "strategyqa"] == 61
    steps = store.read("cot_steps").to_pandas()
    of_mistakes = steps[steps["scope_key"].isin(with_text.loc[with_text["model"] == "Phi-3", "scope_key"])]
    assert int(of_mistakes["eligible"].sum()) == 300
    assert steps["char_start"].notna().all()
