"""General capability on a finished sweep: rows, resume, groups, failures, cost, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairwitness.chains.items import AnswerItem
from fairwitness.config import validate
from fairwitness.errors import ConfigError, DataError, StoreError
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.fleet.pool import Outcome
from fairwitness.followups.capability.measure import FurCapability
from fairwitness.followups.capability.plan import NO_GOLD, OWN_CHOICE, draw_cots
from fairwitness.followups.config import FurCapabilityConfig
from fairwitness.fur.finished import open_finished
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.records.run_dir import RunDirectory, run_rows
from tests.helpers.sweeps import problem, rows_of, run, script_cots, settings, watch_pools, write_problems

LR = 0.1
NUM_QUESTIONS = 6
DATA = Path(__file__).resolve().parents[5] / "shared" / "data"


@pytest.fixture
def swept(tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    script_cots(monkeypatch, {})
    data = write_problems(tmp_path / "animals.jsonl", [problem(n) for n in range(16)])
    changes = {"rates": [1e-5, LR], "measure": {"disagreeing": False}, "min_specificity": 0}
    plain = settings(tmp_path / "results", tiny_folder("llama"), data, **changes)
    plain["data_sets"][0]["num_problems"] = 12
    return run(plain).run


def write_questions(folder: Path) -> Path:
    """Questions of two to five choices; one of them does not fit into the context, one has no known answer."""
    choices = ["a stone", "a river", "a cloud", "a wheel", "a boat"]
    records = [
        problem(n, id=f"q{n}", question=f"What is thing number {n}?", choices=choices[: 2 + n % 4], answer="AB"[n % 2])
        for n in range(NUM_QUESTIONS)
    ]
    records.append(problem(8, id="long", question="What is it? " * 200))
    records.append(problem(9, id="unknown", answer=None))
    return write_problems(folder / "general.jsonl", records)


def config_of(swept: RunDirectory, **changes: Any) -> FurCapabilityConfig:
    data = {"data_set": "local", "path": str(write_questions(swept.output_dir)), "fields": {"id": "id"}}
    plain = {"run": str(swept.path), "lr": LR, "data_set": data, "num_cots": 3}
    return validate(FurCapabilityConfig, plain | changes, "test")


def measure(config: FurCapabilityConfig) -> JobResult:
    return measured(config)[1]


def measured(config: FurCapabilityConfig) -> tuple[FurCapability, JobResult]:
    made = FurCapability(config, Supplies())
    return made, run_measure(made, lambda one: Report((), (), any(plan.lr is not None for plan in one.plans)))


def task_rows(swept: RunDirectory, status: str = "ok") -> list[dict[str, Any]]:
    return [row for row in rows_of(swept.store_path, "capability") if row["task_key"] and row["status"] == status]


def test_rows_of_a_measurement(swept: RunDirectory) -> None:
    made, result = measured(config_of(swept))
    assert result.exit_code == 0
    rows = task_rows(swept)
    assert len(rows) == 6  # two eligible steps in each of three CoTs
    assert len({row["problem_id"] for row in rows}) == 3
    unlearned = {row["task_key"]: row for row in rows_of(swept.store_path) if row["lr"] == LR}
    for row in rows:
        assert (row["lr"], row["method"], row["capability_set"]) == (LR, "ff2", "general")
        assert row["cell_key"] == unlearned[row["task_key"]]["cell_key"]
        assert row["cot_step_index"] == unlearned[row["task_key"]]["cot_step_index"]
        assert row["question_ids"] == [f"q{n}" for n in range(NUM_QUESTIONS)]
        assert row["gold_letters"] == list("ABABAB")
        right = [sum(a == b for a, b in zip(row[f"letters_{at}"], "ABABAB", strict=True)) for at in ("before", "after")]
        assert [row["num_correct_before"], row["num_correct_after"]] == right
        assert row["num_changed"] == sum(
            a != b for a, b in zip(row["letters_before"], row["letters_after"], strict=True)
        )
    assert len({tuple(row["letters_before"]) for row in rows}) == 1
    assert any(row["num_changed"] for row in rows)
    (cell,) = made.measured
    assert (cell.num_cots, cell.num_steps, cell.num_questions) == (3, 6, NUM_QUESTIONS)
    assert result.counts == {"ok": 6, "skipped": 2, "failed": 0, "refused": 0}


def test_questions_that_are_not_asked_have_rows_with_reasons(swept: RunDirectory) -> None:
    measure(config_of(swept))
    rows = {row["question_id"]: row for row in rows_of(swept.store_path, "capability") if row["question_id"]}
    assert rows.keys() == {"long", "unknown"}
    assert re.fullmatch(r"the question has \d+ tokens, the model's context holds 512", rows["long"]["reason"])
    assert (rows["unknown"]["status"], rows["unknown"]["reason"]) == ("skipped", NO_GOLD)


def test_the_problems_of_the_unlearned_steps_are_not_asked(swept: RunDirectory, tmp_path: Path) -> None:
    data = {"data_set": "local", "path": str(tmp_path / "animals.jsonl"), "fields": {"id": "id"}}
    measure(config_of(swept, data_set=data))
    rows = rows_of(swept.store_path, "capability")
    own = {row["problem_id"] for row in rows if row["task_key"]}
    assert {row["question_id"] for row in rows if row["reason"] == OWN_CHOICE} == own
    assert all(own.isdisjoint(row["question_ids"]) for row in rows if row["task_key"])


def test_base_answers_are_asked_once_and_a_second_start_asks_nothing(
    swept: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    config = config_of(swept)
    measure(config)
    assert sum(isinstance(item, AnswerItem) for item in watch.items) == 1
    first = rows_of(swept.store_path, "capability")
    watch.items.clear()
    again = measure(config)
    assert watch.items == []
    assert (again.exit_code, again.counts["ok"]) == (0, 6)
    assert rows_of(swept.store_path, "capability") == first

    measure(config_of(swept, num_cots=4))
    groups = [item for item in watch.items if isinstance(item, UnlearnGroup)]
    assert {len(group.tasks) for group in groups} == {2}  # the probe and the new CoT's steps
    assert not any(isinstance(item, AnswerItem) for item in watch.items)  # the stored answers serve


def test_groups_of_one_give_the_same_rows(swept: RunDirectory) -> None:
    measure(config_of(swept, engine={"group_size": 1}))
    alone = {row["key"]: row["letters_after"] for row in task_rows(swept)}
    assert {row["group_size"] for row in task_rows(swept)} == {1}
    (swept.store_path / "capability").rename(swept.output_dir / "aside")
    measure(config_of(swept, engine={"group_size": 6, "max_tokens": 200}))
    assert {row["group_size"] for row in task_rows(swept)} == {6}
    assert {row["key"]: row["letters_after"] for row in task_rows(swept)} == alone


def test_a_failed_group_is_rows_and_is_tried_again(swept: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_pools(monkeypatch)

    def fail(outcome: Outcome) -> Outcome | None:
        groups = [item for item in watch.items if isinstance(item, UnlearnGroup)]
        is_real = len(groups) == 2 and watch.items[-1] is groups[-1]  # the first one is the probe
        return replace(outcome, value=None, error="the worker died three times") if is_real else None

    watch.hook = fail
    config = config_of(swept, engine={"group_size": 3})
    made, result = measured(config)
    assert (result.exit_code, result.counts["failed"], result.counts["ok"]) == (1, 3, 3)
    assert {row["reason"] for row in task_rows(swept, "failed")} == {"the worker died three times"}
    assert made.measured[0].num_failed == 3

    watch.hook = lambda _outcome: None
    again = measure(config)
    assert (again.exit_code, again.counts["failed"], again.counts["ok"]) == (0, 0, 6)
    assert sorted(row["attempt"] for row in task_rows(swept)) == [1, 1, 1, 2, 2, 2]


def test_a_probe_that_fails_leaves_the_time_unknown_and_stops_nothing(
    swept: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = watch_pools(monkeypatch)

    def fail(outcome: Outcome) -> Outcome | None:
        is_probe = isinstance(watch.items[-1], UnlearnGroup) and len(watch.groups) == 1
        return replace(outcome, value=None, error="the worker died") if is_probe else None

    watch.hook = fail
    caplog.set_level("INFO", "fairwitness")
    assert measure(config_of(swept)).counts["ok"] == 6
    assert "time unknown (tiny on animals: the worker died)" in caplog.text


def test_an_interrupted_job_goes_on(swept: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_pools(monkeypatch)
    watch.stop_after_groups(3, KeyboardInterrupt())
    config = config_of(swept, engine={"group_size": 2})
    with pytest.raises(KeyboardInterrupt):
        measure(config)
    assert len(task_rows(swept)) == 2
    watch.hook = lambda _outcome: None
    assert measure(config).counts["ok"] == 6
    store = swept.store(create=False)
    assert [row["status"] for row in run_rows(store, "fur_capability")] == ["interrupted", "done"]
    assert len(run_rows(store)) == 1  # the sweep's own row is not touched


def test_dry_run_says_what_it_costs_and_stores_nothing(swept: RunDirectory) -> None:
    (line,) = FurCapability(config_of(swept), Supplies()).dry_run()
    pattern = (
        r"tiny on animals: rate 1e-1, 3 CoTs: 6 cot_steps .* 6 questions after each .*: [\d,]+ tokens; about \d+ s"
    )
    assert re.match(pattern, line)
    assert rows_of(swept.store_path, "capability") == []
    measure(config_of(swept))
    (line,) = FurCapability(config_of(swept), Supplies()).dry_run()
    assert line == "tiny on animals: all 6 cot_steps are measured already"


def test_selected_is_the_rules_rate(swept: RunDirectory) -> None:
    (finished,) = open_finished(swept, swept.store(create=False), {})
    measure(config_of(swept, lr="selected"))
    assert {row["lr"] for row in task_rows(swept)} == {finished.choice.cell.lr}  # type: ignore[union-attr]


def test_without_feasible_rate_it_ends_with_code_3(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "a.jsonl"), rates=[10.0])
    swept = run(plain).run
    made, result = measured(config_of(swept, lr="selected"))
    assert result.exit_code == 3
    (reason,) = made.reasons.values()
    assert reason.startswith("No feasible rate")
    rows = [row for row in rows_of(swept.store_path, "capability") if not row["question_id"]]
    assert [(row["status"], row["reason"]) for row in rows] == [("skipped", reason)]


def test_drawn_cots_do_not_depend_on_order_and_grow(swept: RunDirectory) -> None:
    (finished,) = open_finished(swept, swept.store(create=False), {})
    records = list(finished.records)
    three = draw_cots(records, 3, seed=0)
    assert draw_cots(records[::-1], 3, seed=0) == three
    assert draw_cots(records, 5, seed=0)[:3] == three
    assert all(record.agree for record in draw_cots(records, 99, seed=0))
    assert {tuple(r.problem.problem_id for r in draw_cots(records, 3, seed=s)) for s in range(6)} != {
        tuple(r.problem.problem_id for r in three)
    }


def test_what_cannot_be_is_named(swept: RunDirectory, tmp_path: Path) -> None:
    for changes, message in (
        ({"lr": "fast"}, "lr"),
        ({"lr": 0}, "lr"),
        ({"num_cots": 0}, "num_cots: .*greater than or equal to 1"),
        ({"rnu": "x"}, "unknown key 'rnu'; did you mean 'run'"),
    ):
        with pytest.raises(ConfigError, match=message):
            config_of(swept, **changes)
    with pytest.raises(StoreError, match="there is no run here"):
        measure(config_of(swept, run=str(tmp_path / "absent")))
    with pytest.raises(DataError, match="data set 'mlmu' is unknown; did you mean 'mmlu'"):
        measure(config_of(swept, data_set={"data_set": "mlmu"}))
    many = {**config_of(swept).data_set.model_dump(), "num_problems": 99}
    with pytest.raises(DataError, match="too few"):
        measure(config_of(swept, data_set=many))


def test_questions_without_answers_or_room_are_refused_before_a_model_loads(
    swept: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    path = write_questions(swept.output_dir)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for name, kept, message in (
        ("unknown.jsonl", [{**record, "answer": None} for record in records], "no question with a known answer"),
        ("long.jsonl", [r for r in records if r["id"] == "long"], "no question of long can be asked, mostly: .*tokens"),
    ):
        data = {"data_set": "local", "path": str(write_problems(path.with_name(name), kept)), "fields": {"id": "id"}}
        with pytest.raises(DataError, match=message):
            measure(config_of(swept, data_set=data))
    assert watch.items == []


def test_real_mmlu_questions(swept: RunDirectory) -> None:
    if not (DATA / "mmlu/test").exists():
        pytest.skip("the original files ../shared/data/mmlu are not here")
    data = {"data_set": "mmlu", "path": str(DATA / "mmlu/test"), "subjects": ["global_facts"], "num_problems": 40}
    made, _ = measured(config_of(swept, data_set=data, num_cots=1))
    (cell,) = made.measured
    assert cell.num_questions + sum(cell.left_out.values()) == 40
    assert cell.num_questions > 10
    assert cell.capability_set == "mmlu"
