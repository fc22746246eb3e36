"""Tables 3 and 10: verdicts at the shown rates, by hand; and the published judgements give the published table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwitness.experiment.job import Report
from fairwitness.followups.judging.rules import rules_key
from fairwitness.judges.config import RulesConfig
from fairwitness.published.importing import ImportConfig, import_published
from fairwitness.report.paper.data import PaperData, load_paper
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.followup_tables import BY_CONSTRUCTION, NOT_JUDGED, table_3, table_10
from tests.unit.report.paper.conftest import HIGH, Method, cell_key, scope_key

MODEL, DATA_SET = "LLaMA-8B", "arc_challenge"
FULL: Method = ("ff2", None)
RANK_8: Method = ("lora", 8)


def _judgement(number: int, step: int, verdict: str, method: Method = FULL, lr: float = HIGH) -> dict[str, Any]:
    cell = cell_key(MODEL, DATA_SET, lr, method)
    return {
        "key": f"judged-{cell}-{number}-{step}",
        "item_key": f"{cell}-{number}-{step}",
        "kind": "cot_after",
        "scope_key": scope_key(MODEL, DATA_SET),
        "cell_key": cell,
        "model": MODEL,
        "data_set": DATA_SET,
        "problem_id": f"p{number}",
        "cot_step_index": step,
        "judge": "rules",
        "judge_key": "j1",
        "verdict": verdict,
        "reply": verdict,
        "status": "ok",
    }


def _texts(exhibit: Exhibit) -> list[tuple[str, ...]]:
    assert exhibit.grid is not None
    return [tuple(cell.text for cell in row) for row in exhibit.grid.rows]


def test_tables_3_and_10_by_hand(make_run: Callable[..., Path], tmp_path: Path) -> None:
    # At the highest rate p0's first and p1's second step change the direct answer; p2's do not.
    verdicts = [(0, 0, "different"), (1, 1, "same"), (2, 0, "different")]
    rows = [_judgement(*verdict, method) for method in (FULL, RANK_8) for verdict in verdicts]
    options = {"models": [MODEL], "data_sets": [DATA_SET], "methods": [FULL, RANK_8], "rates": [HIGH]}
    data = load_paper([make_run(tmp_path, tables={"judgements": rows}, **options)])
    exhibit = table_3(data)
    (row,) = exhibit.frame.to_dict("records")
    assert (row["different_numerator"], row["different_denominator"]) == (1, 2)
    assert (row["different_all_numerator"], row["different_all_denominator"]) == (2, 3)
    assert (row["different_published"], row["feasible"]) == ("81.5", False)
    assert _texts(exhibit) == [(MODEL, "50.0 †")]
    lora = table_10(data)
    assert _texts(lora) == [(f"{MODEL}, LoRA, rank 8", "0.50 †")]
    assert lora.grid is not None
    assert lora.grid.rows[0][1].mark == "grey"
    assert not any(line.startswith("paper") for line in lora.grid.rows[0][1].lines)


def test_a_rate_that_is_not_shown_is_left_out(make_run: Callable[..., Path], tmp_path: Path) -> None:
    rows = [_judgement(0, 0, "different")]
    data = load_paper([make_run(tmp_path, models=[MODEL], data_sets=[DATA_SET], tables={"judgements": rows})])
    assert table_3(data).missing == NOT_JUDGED


def test_without_judgements_the_jobs_are_named(hand_data: PaperData) -> None:
    assert table_3(hand_data).missing == NOT_JUDGED
    assert "fairwitness judge" in str(table_10(hand_data).missing)


def test_the_published_judgements_give_the_published_table(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[5] / "shared" / "data" / "fur_published" / "judgements"
    if not folder.is_dir():
        pytest.skip("the published files ../shared/data/fur_published are not here")
    files = tuple(str(path) for path in sorted(folder.iterdir()))
    config = ImportConfig(name="published", dir=str(tmp_path), files=files)
    run = import_published(config, report=lambda _path: Report((), ())).run
    exhibit = table_3(load_paper([run.path]))
    found = {(row["model"], row["data_set"]): row for row in exhibit.frame.to_dict("records")}
    assert len(found) == 5
    for row in found.values():
        assert f"{100 * row['different']:.1f}" == row["different_published"]
    assert found["LLaMA-3-8B", "arc_challenge"]["different_numerator"] == 97
    assert found["Phi-3", "strategyqa"]["different_published"] == "73.6"


def test_a_judge_that_reads_the_selection_is_marked(make_run: Callable[..., Path], tmp_path: Path) -> None:
    answered = rules_key(RulesConfig(reading="answered"))
    rows = [{**_judgement(0, 0, "different"), "judge_key": answered}]
    options = {"models": [MODEL], "data_sets": [DATA_SET], "rates": [HIGH]}
    exhibit = table_3(load_paper([make_run(tmp_path, tables={"judgements": rows}, **options)]))
    assert _texts(exhibit) == [(MODEL, "100.0 † ‡")]
    assert BY_CONSTRUCTION in exhibit.notes
    assert exhibit.frame["different_published"].isna().all()
    assert any("supports another answer than the CoT before" in note for note in exhibit.notes)
