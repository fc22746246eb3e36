"""What a user of `fairwitness search` gets for everything that can be wrong, and its closing lines.

- one-rate grid: test_one_rate_is_nothing_to_choose_among
- fewer than 30 problems: test_too_few_problems
- infeasible bound: test_infeasible_bound
- searches that a sweep cannot follow: tests/integration/test_lr_search.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairwitness.commands.start import start
from fairwitness.jobs import JOBS
from fairwitness.organisms.shipped import organism_path
from tests.helpers.commands import Ended, process_settings_restored
from tests.helpers.searches import search_settings
from tests.helpers.sweeps import rows_of, write_problems

Command = Callable[..., Ended]
GRID = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    def run(plain: dict[str, Any], *overrides: str, **options: Any) -> Ended:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
        capsys.readouterr()
        code = start(JOBS["lr_search"], tmp_path / "job.yaml", overrides, **options)
        return Ended(code, *capsys.readouterr())

    with process_settings_restored():
        yield run


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    return search_settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))


def store_of(plain: dict[str, Any]) -> Path:
    return Path(plain["output"]["dir"]) / "small" / "store"


@pytest.mark.parametrize("kind", ["grid", "bracket"])
def test_one_rate_is_nothing_to_choose_among(command: Command, plain: dict[str, Any], kind: str) -> None:
    message = command({**plain, "search": {"kind": kind, "rates": [1e-3]}}).refused()
    assert "rates: " in message
    assert "nothing to choose among fewer than two rates; give more, or measure one with fairwitness sweep" in message
    assert not store_of(plain).exists()


def test_too_few_problems(command: Command, plain: dict[str, Any]) -> None:
    del plain["min_problems"]
    message = command(plain).refused()
    assert message == (
        "animals: 5 problems are too few to choose a rate on, the paper takes 30; raise its num_problems, or set "
        "min_problems to at most 5"
    )
    assert not store_of(plain).exists()


@pytest.mark.parametrize("kind", ["grid", "bracket"])
def test_infeasible_bound(command: Command, plain: dict[str, Any], kind: str) -> None:
    ended = command({**plain, "search": {"kind": kind, "rates": [1e-2, 1e-1]}, "min_specificity": 100})
    assert ended.code == 3
    assert "No feasible rate" in ended.out
    assert "keeps specificity at 100 or above" in ended.out
    assert "nearest miss 1e-2 with specificity " in ended.out
    assert "lr: selected" not in ended.out
    assert "Traceback" not in ended.err
    (row,) = rows_of(store_of(plain), "runs")
    assert (row["status"], row["exit_code"]) == ("done", 3)


def test_closing_lines(command: Command, plain: dict[str, Any]) -> None:
    ended = command(plain)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].startswith("tiny on animals: selected rate 1e-3: efficacy ")
    assert ", specificity 100.0% (95% interval " in lines[0]
    assert lines[0].endswith(" problems")
    assert any("rates tried with " in line and "a grid of all 4 rates takes " in line for line in lines)
    assert any(line.startswith("report: ") for line in lines)
    assert any("lr: selected" in line for line in lines)


def test_highest_rate_is_remarked(command: Command, plain: dict[str, Any]) -> None:
    ended = command({**plain, "search": {"kind": "grid", "rates": [1e-4, 1e-3]}})
    assert "that is the highest rate of the search; a higher one may be better" in ended.out


def test_dry_run(command: Command, plain: dict[str, Any]) -> None:
    ended = command(plain, dry=True)
    assert ended.code == 0
    assert "4 rates" in ended.out
    assert ended.out.splitlines()[-1].endswith("the search takes at most that")
    assert not store_of(plain).exists()


def test_mlflow_has_a_run_per_search_and_one_per_tried_rate(command: Command, plain: dict[str, Any]) -> None:
    from mlflow.tracking import MlflowClient

    assert command({**plain, "tracking": {"enabled": True}}).code == 0
    client = MlflowClient(f"sqlite:///{Path(plain['output']['dir']) / 'mlflow.db'}")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert [run.data.tags["fairwitness.job"] for run in parents] == ["lr_search"]
    tried = {row["lr"] for row in rows_of(store_of(plain), "trials")}
    assert {float(run.data.params["lr"]) for run in children} == tried
    assert len(children) == len(tried)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_the_organism_the_bracket_takes_at_most_half_of_the_grids_tasks(command: Command, tmp_path: Path) -> None:
    found: dict[str, tuple[float, float, int]] = {}
    for kind in ("grid", "bracket"):
        plain = {
            "name": kind,
            "models": [{"model": str(organism_path()), "name": "organism"}],
            "data_sets": [{"data_set": "organism", "num_problems": 30, "num_held_out": 20}],
            "search": {"kind": kind, "rates": GRID},
            "pool": {"kind": "local"},
            "output": {"dir": str(tmp_path)},
            "tracking": {"enabled": False},
        }
        assert command(plain).code == 0
        rows = rows_of(tmp_path / kind / "store", "trials")
        (best,) = [row for row in rows if row["is_selected"]]
        found[kind] = (best["lr"], best["efficacy"], sum(row["num_tasks_ok"] for row in rows))
    assert found["bracket"][1] >= found["grid"][1] - 1e-6
    assert found["bracket"][2] <= found["grid"][2] / 2
