"""A finished sweep opened again: same records, same chosen rate, and a clear refusal when data or model changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairwitness.analysis.faithfulness import ChosenRate, Infeasible
from fairwitness.config import validate
from fairwitness.errors import StoreError
from fairwitness.followups.config import FurBaselinesConfig
from fairwitness.fur.finished import open_finished
from fairwitness.records.run_dir import RunDirectory
from tests.helpers.sweeps import run, settings, write_problems


@pytest.fixture
def swept(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> RunDirectory:
    config = settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))
    return run(config).run


def test_opens_what_the_sweep_stored(swept: RunDirectory) -> None:
    store = swept.store(create=False)
    (found,) = open_finished(swept, store, {})
    cots = {row["problem_id"]: row for row in store.read("cots").to_pylist()}
    assert [record.problem.problem_id for record in found.records] == sorted(cots)
    for record in found.records:
        assert list(record.cot_ids) == cots[record.problem.problem_id]["cot_ids"]
        assert record.agree == cots[record.problem.problem_id]["agree"]
    assert len(found.unlearning) == store.num_rows("unlearning")
    assert isinstance(found.choice, ChosenRate | Infeasible)


def test_a_following_job_may_have_workers_and_tracking_of_its_own(swept: RunDirectory) -> None:
    plain = {"run": str(swept.path), "baselines": [{"kind": "early_answering"}], "tracking": {"experiment": "mine"}}
    following = validate(FurBaselinesConfig, plain, "job.yaml")
    (own,) = open_finished(swept, swept.store(create=False), {}, following)
    (theirs,) = open_finished(swept, swept.store(create=False), {})
    assert own.study.config.tracking == following.tracking != theirs.study.config.tracking
    assert own.study.config == theirs.study.config.model_copy(update={"tracking": following.tracking})


def test_changed_data_are_refused(swept: RunDirectory, tmp_path: Path) -> None:
    path = tmp_path / "animals.jsonl"
    lines = path.read_text().splitlines()
    first = json.loads(lines[0])
    path.write_text("\n".join([json.dumps({**first, "question": "Another question?"}), *lines[1:]]) + "\n")
    with pytest.raises(StoreError, match="a data set is not the one of the sweep"):
        open_finished(swept, swept.store(create=False), {})


def test_a_run_without_sweep_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "empty")
    with run.store() as store, pytest.raises(StoreError, match="no sweep is recorded"):
        open_finished(run, store, {})
