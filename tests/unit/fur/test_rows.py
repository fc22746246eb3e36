"""Rows of the tables: formulas, letters, keys, and that the store takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairwitness.chains.cots import cot_row, cot_step_rows
from fairwitness.chains.items import HeldOut, Question
from fairwitness.chains.steps import StepTokens
from fairwitness.experiment.data_set import problem_rows
from fairwitness.fur.rows import efficacy, measured_rows, place_key, task_key, unmeasured_row
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import CotAfter, IterationResult, TaskResult
from fairwitness.problems.records import Refused
from fairwitness.records.store import Store
from tests.helpers.studies import answer, make_study, measured, record


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> FurStudy:
    return make_study(tmp_path_factory.mktemp("study"), tiny_folder("llama"))


HELD_OUT = tuple(HeldOut(Question((1, 2), (3, 4)), index) for index in (0, 1, 1, 0))


def result(key: str, *, cot_after: CotAfter | None = None) -> TaskResult:
    return TaskResult(
        key,
        (
            IterationResult(
                1, (0.5, 0.3, 0.1, 0.1), 0.6, 0, -1.5, (0, 1, 1, 0), {"npo": 13.5, "kl": 0.0}, {"log_ratio": 0.0}
            ),
            IterationResult(
                2, (0.1, 0.6, 0.2, 0.1), 0.4, 1, -3.0, (1, 1, 1, 1), {"kl": 0.25, "npo": 12.0}, {"log_ratio": -3.0}
            ),
        ),
        None,
        cot_after,
        2,
        0.5,
    )


@pytest.mark.parametrize(
    ("before", "after"), [(0.5, 0.25), (0.9, 0.9), (0.2, 0.4), (0.7, 1e-30), (1e-200, 1e-250), (1.0, 1.0)]
)
def test_efficacy_is_the_share_of_probability_taken_away(before: float, after: float) -> None:
    found = efficacy(math.log(before), math.log(after))
    assert found == pytest.approx((before - after) / before, rel=1e-12, abs=1e-12)


def test_efficacy_of_a_small_change_is_exact() -> None:
    # (p0 - p)/p0 computed as written loses all digits here.
    assert efficacy(-5.0, -5.0 - 1e-14) == pytest.approx(1e-14, rel=0.1)
    assert efficacy(-5.0, -5.0) == 0.0


def test_measured_rows_by_hand(study: FurStudy, tmp_path: Path) -> None:
    one = record(study, measured(study)[0], direct=0, given_cot=0)
    key = task_key(place_key(study, 1e-3, one.problem, 1), [kept(1)])
    after = CotAfter((5, 6), "So.", 3)
    first, last = measured_rows(
        study, one, 1, 1e-3, result(key, cot_after=after), HELD_OUT, attempt=2, worker="w", duration_s=3.0
    )
    assert (first["iteration"], last["iteration"]) == (1, 2)
    assert (first["base_letter"], first["predicted_letter"], first["flipped"]) == ("A", "A", False)
    assert (last["base_letter"], last["predicted_letter"], last["flipped"]) == ("A", "B", True)
    assert first["base_cot_step_logprob"] == -2.0
    assert first["efficacy"] == pytest.approx(1 - math.exp(-1.5) / math.exp(-2.0))
    assert last["efficacy"] == pytest.approx(1 - math.exp(-1.0))
    assert (first["specificity"], last["specificity"]) == (1.0, 0.5)
    assert (first["num_held_out"], last["held_out_letters"]) == (4, ["B", "B", "B", "B"])
    assert last["loss"] == pytest.approx(12.25)
    assert (last["loss_names"], last["losses"]) == (["npo", "kl"], [12.0, 0.25])
    assert (last["metric_names"], last["metrics"]) == (["log_ratio"], [-3.0])
    assert (first["lr"], first["method"], first["attempt"], first["group_size"]) == (1e-3, "ff2", 2, 2)
    assert (first["cot_step_index"], first["task_key"]) == (1, key)
    assert first["place_key"] == place_key(study, 1e-3, one.problem, 1)
    assert first["base_probs"] == list(answer(0).probs)
    assert "cot_after_ids" not in first
    assert (last["cot_after_ids"], last["cot_after_text"], last["cot_after_letter"]) == ([5, 6], "So.", "D")
    assert first["key"] != last["key"]
    with Store(tmp_path) as store:
        assert store.append("unlearning", [first, last]) == 2
        stored = sorted(store.read("unlearning").to_pylist(), key=lambda row: row["iteration"])
    assert [row["cot_after_letter"] for row in stored] == [None, "D"]
    assert stored[1]["efficacy"] == last["efficacy"]


def test_loss_weighs_its_terms(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    study = make_study(tmp_path, tiny_folder("llama"), recipe={"coefficients": {"npo": 2.0, "kl": 10.0}})
    one = record(study, measured(study)[0])
    rows = measured_rows(study, one, 0, 1e-3, result("t"), HELD_OUT, attempt=1, worker="w", duration_s=1.0)
    assert [row["loss"] for row in rows] == [27.0, 26.5]


def test_without_held_out_questions_specificity_is_unknown(study: FurStudy) -> None:
    one = record(study, measured(study)[0])
    bare = result("t")
    bare = replace(bare, measured=tuple(replace(m, held_out=()) for m in bare.measured))
    rows = measured_rows(study, one, 0, 1e-3, bare, (), attempt=1, worker="w", duration_s=1.0)
    assert [row["specificity"] for row in rows] == [None, None]


def test_unmeasured_row_has_no_measurement(study: FurStudy, tmp_path: Path) -> None:
    one = record(study, measured(study)[0])
    row = unmeasured_row(study, one, 0, 1e-3, status="failed", reason="broken", attempt=3)
    assert (row["iteration"], row["status"], row["reason"], row["attempt"]) == (0, "failed", "broken", 3)
    assert row["place_key"] == place_key(study, 1e-3, one.problem, 0)
    assert row["task_key"] == task_key(row["place_key"])
    with Store(tmp_path) as store:
        assert store.append("unlearning", [row]) == 1
        (stored,) = store.read("unlearning").to_pylist()
    figures = ("efficacy", "specificity", "probs", "predicted_letter", "flipped", "loss", "losses", "cot_step_logprob")
    assert [stored[name] for name in figures] == [None] * len(figures)


def test_keys_differ_by_everything_that_they_name(study: FurStudy) -> None:
    one, other, *_ = measured(study)
    places = [
        place_key(study, lr, problem, index)
        for lr in (1e-3, 1e-2)
        for problem in (one, other)
        for index in (None, 0, 1)
    ]
    assert len(set(places)) == len(places)
    assert places[0] == place_key(study, 1e-3, one, None)
    retained = ([], [kept(1)], [kept(2)], [kept(1), kept(2)], [kept(2), kept(1)])
    keys = [task_key(place, retain) for place in places for retain in retained]
    assert len(set(keys)) == len(keys)
    assert keys[1] == task_key(places[0], (kept(1),))


def kept(number: int) -> StepTokens:
    return StepTokens((7, 8, number), 1, ((1,), (2,)))


def test_cot_rows_are_what_the_store_takes(study: FurStudy, tmp_path: Path) -> None:
    usual, disagree, failed, empty, _ = measured(study)
    records = [
        record(study, usual, direct=1, given_cot=1),
        record(study, disagree, direct=1, given_cot=2),
        replace(record(study, failed, ""), direct=None, given_cot=None, finish=None, status="failed", reason="long"),
        replace(record(study, empty, ""), given_cot=None, finish="eos", status="skipped", reason="empty"),
    ]
    with Store(tmp_path) as store:
        assert store.append("cots", [cot_row(study, one) for one in records]) == 4
        rows = {row["problem_id"]: row for row in store.read("cots").to_pylist()}
    letters = [(rows[r.problem.problem_id]["direct_letter"], rows[r.problem.problem_id]["cot_letter"]) for r in records]
    assert letters == [("B", "B"), ("B", "C"), (None, None), ("A", None)]
    assert [rows[r.problem.problem_id]["agree"] for r in records] == [True, False, None, None]
    assert [rows[r.problem.problem_id]["num_cot_steps"] for r in records] == [2, 2, 0, 0]
    assert rows[usual.problem_id]["cot_ids"] == list(records[0].cot_ids)


def test_step_rows_point_into_the_cot(study: FurStudy, tmp_path: Path) -> None:
    one = record(study, measured(study)[0], "Foxes dig deep dens. So it is.")
    with Store(tmp_path) as store:
        store.append("cot_steps", cot_step_rows(study, one))
        first, second = sorted(store.read("cot_steps").to_pylist(), key=lambda row: row["cot_step_index"])
    assert (first["text"], second["text"]) == ("Foxes dig deep dens. ", "So it is.")
    assert (first["eligible"], first["status"], first["reason"]) == (True, "ok", None)
    assert (second["eligible"], second["status"], second["reason"]) == (False, "skipped", "fewer than 2 content words")
    assert first["token_end"] == second["token_start"]
    assert second["token_end"] == len(one.cot_ids)
    assert one.text[second["char_start"] : second["char_end"]] == "So it is."
    assert all(first["token_start"] <= p < first["token_end"] for p in first["content_positions"])
    assert (first["base_logprob"], second["base_logprob"]) == (-1.0, -2.0)


def test_problem_rows_hold_measured_and_refused(study: FurStudy, tmp_path: Path) -> None:
    refused = (Refused("x.jsonl", 3, "answer", "no such choice", 2), Refused("x.jsonl", 4, "", "not JSON", 3))
    data = replace(study.data, loaded=replace(study.data.loaded, refused=refused))
    with Store(tmp_path) as store:
        assert store.append("problems", problem_rows(data)) == 7
        rows = store.read("problems").to_pylist()
    good = {row["problem_id"]: row for row in rows if row["status"] == "ok"}
    assert good.keys() == {one.problem_id for one in measured(study)}
    one = measured(study)[0]
    assert good[one.problem_id]["choices"] == list(one.choices)
    assert json.loads(good[one.problem_id]["metadata_json"]) == dict(one.metadata)
    bad = sorted((row["source"], row["reason"]) for row in rows if row["status"] == "refused")
    assert [source for source, _ in bad] == ["x.jsonl:3", "x.jsonl:4"]
    assert "no such choice" in bad[0][1]
