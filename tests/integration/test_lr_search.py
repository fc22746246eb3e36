"""Whole searches without Ray: the rule's choice with fewer tasks, one engine, resumable, and followed by a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairwitness.analysis.faithfulness import ChosenRate, Infeasible
from fairwitness.chains.items import CotItem
from fairwitness.errors import ConfigError, InfeasibleError
from fairwitness.fleet.pool import Outcome
from fairwitness.fur.checks import CheckItem
from fairwitness.fur.finished import open_finished
from fairwitness.fur.memory import CapacityItem
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.records.run_dir import RunDirectory
from fairwitness.report.build import build_report
from tests.helpers.searches import SEARCH_RATES, SearchResult, search, search_settings
from tests.helpers.sweeps import (
    Watch,
    assert_same,
    measurements,
    problem,
    rows_of,
    run,
    settings,
    watch_pools,
    write_problems,
)

JOB_MODULE = "fairwitness.experiment.measure"
GRID = {"search": {"kind": "grid", "rates": list(SEARCH_RATES)}}

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_problems(tmp_path_factory.mktemp("data") / "animals.jsonl")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], data: Path) -> Make:
    def plain(**changes: Any) -> dict[str, Any]:
        made = search_settings(tmp_path_factory.mktemp("runs"), tiny_folder("llama"), data)
        return {**made, **changes}

    return plain


@pytest.fixture(scope="module")
def usual(make: Make) -> tuple[SearchResult, Watch]:
    with pytest.MonkeyPatch.context() as patch:
        watch = watch_pools(patch, JOB_MODULE)
        return search(make()), watch


@pytest.fixture(scope="module")
def grid(make: Make) -> SearchResult:
    return search(make(**GRID))


def chosen(result: SearchResult) -> float | None:
    (outcome,) = result.outcomes
    return outcome.choice.cell.lr if isinstance(outcome.choice, ChosenRate) else None


def trials(result: SearchResult) -> dict[float, dict[str, Any]]:
    (latest,) = [row["key"] for row in rows_of(result, "runs") if row["status"] == "done"][-1:]
    return {row["lr"]: row for row in rows_of(result, "trials") if row["run_key"] == latest}


def test_bracket_finds_what_the_grid_finds_with_fewer_tasks(
    usual: tuple[SearchResult, Watch], grid: SearchResult
) -> None:
    found, _ = usual
    assert chosen(found) == chosen(grid) == 1e-3
    assert found.outcomes[0].num_grid_tasks == grid.outcomes[0].num_tasks == grid.counts["ok"]
    assert found.outcomes[0].num_tasks == found.counts["ok"] < grid.counts["ok"]
    # What the bracket measured is what the grid measured there.
    expected = measurements(rows_of(grid))
    assert_same(measurements(rows_of(found)), {key: expected[key] for key in measurements(rows_of(found))})


def test_one_engine_and_one_set_up_serve_the_whole_search(usual: tuple[SearchResult, Watch]) -> None:
    result, watch = usual
    kinds = Counter(type(item) for item in watch.items)
    assert result.num_models_loaded == 1
    assert (kinds[CheckItem], kinds[CapacityItem], kinds[CotItem]) == (1, 1, 1)
    assert len({group.lr for group in watch.groups}) >= 2
    assert len(watch.task_keys) == len(set(watch.task_keys)) == result.counts["ok"]


def test_every_tried_rate_is_a_row(usual: tuple[SearchResult, Watch], grid: SearchResult) -> None:
    found, _ = usual
    rows = trials(found)
    assert sorted(row["trial_index"] for row in rows.values()) == list(range(len(rows)))
    assert [lr for lr, row in rows.items() if row["is_selected"]] == [1e-3]
    assert rows[1e-3]["decision"] == "complete"
    assert {row["searcher"] for row in rows.values()} == {"bracket"}
    assert {row["status"] for row in rows.values()} == {"ok"}
    on_grid = trials(grid)
    assert set(on_grid) == set(SEARCH_RATES)
    assert {row["decision"] for row in on_grid.values()} == {"complete"}
    assert [on_grid[lr]["is_feasible"] for lr in SEARCH_RATES] == [True, True, False, False]
    for name in ("efficacy", "efficacy_low", "specificity", "specificity_high"):
        assert rows[1e-3][name] == pytest.approx(on_grid[1e-3][name], rel=1e-5)


def test_run_is_recorded(usual: tuple[SearchResult, Watch]) -> None:
    result, _ = usual
    (row,) = rows_of(result, "runs")
    assert (row["status"], row["exit_code"], row["job"]) == ("done", 0, "lr_search")
    assert row["num_ok"] == result.counts["ok"]
    assert {one["cell_key"] for one in rows_of(result)} <= set(row["cell_keys"])
    assert len(row["cell_keys"]) == len(SEARCH_RATES)


def test_report_and_followers_take_the_searchs_choice(usual: tuple[SearchResult, Watch]) -> None:
    result, _ = usual
    paths = build_report(result.run.path)
    assert "At the chosen rate 1e-3" in " ".join(paths.findings)
    (study,) = open_finished(result.run, result.run.store(create=False), {})
    assert isinstance(study.choice, ChosenRate)
    assert study.choice.cell.lr == 1e-3


def test_search_in_a_sweeps_run_measures_only_what_is_missing(
    make: Make, monkeypatch: pytest.MonkeyPatch, usual: tuple[SearchResult, Watch]
) -> None:
    plain = make(name="both")
    swept = {name: value for name, value in plain.items() if name not in ("search", "min_problems")}
    run({**swept, "rates": list(SEARCH_RATES[:2])})
    watch = watch_pools(monkeypatch, JOB_MODULE)
    result = search(plain)
    assert not [item for item in watch.items if isinstance(item, CotItem)]
    assert {group.lr for group in watch.groups}.isdisjoint(SEARCH_RATES[:2])
    assert chosen(result) == chosen(usual[0])


def test_interrupted_search_goes_on(make: Make, monkeypatch: pytest.MonkeyPatch, grid: SearchResult) -> None:
    plain = make(**GRID, engine={"group_size": 2})
    watch = watch_pools(monkeypatch, JOB_MODULE)
    watch.stop_after_groups(4, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        search(plain)
    store = Path(plain["output"]["dir"]) / "small" / "store"
    assert [row["status"] for row in rows_of(store, "runs")] == ["interrupted"]
    assert rows_of(store, "trials") == []
    done = {row["task_key"] for row in rows_of(store) if row["status"] == "ok"}
    assert done
    watch.items.clear()
    watch.hook = lambda _outcome: None
    result = search(plain)
    assert done.isdisjoint(watch.task_keys)
    assert len(watch.task_keys) == result.counts["ok"] - len(done)
    assert_same(measurements(rows_of(result)), measurements(rows_of(grid)))
    assert chosen(result) == chosen(grid)


def test_finished_search_asks_no_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make()
    first = search(plain)
    watch = watch_pools(monkeypatch, JOB_MODULE)
    again = search(plain)
    assert watch.items == []
    assert again.num_models_loaded == 0
    assert chosen(again) == chosen(first)
    # Each start has its own rows of trials.
    assert len(rows_of(again, "trials")) == 2 * len(again.outcomes[0].tried)


def fail_at(watch: Watch, lr: float, reason: str) -> None:
    """Lets every task at a rate fail, as the engine reports it."""

    def hook(outcome: Outcome) -> Outcome | None:
        group = watch.items[-1]
        if isinstance(group, UnlearnGroup) and group.lr == lr:
            return replace(outcome, value=[replace(one, measured=(), error=reason) for one in outcome.value])
        return None

    watch.hook = hook


@pytest.mark.parametrize("kind", ["grid", "bracket"])
def test_failed_rate_is_never_best_and_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    plain = make(search={"kind": kind, "rates": list(SEARCH_RATES)})
    watch = watch_pools(monkeypatch, JOB_MODULE)
    fail_at(watch, 1e-3, "non-finite loss or measurement at iteration 1")
    result = search(plain)
    assert result.exit_code == 1
    assert chosen(result) == 1e-4
    row = trials(result)[1e-3]
    assert (row["status"], row["decision"], row["is_selected"], row["is_feasible"]) == ("failed", "failed", False, None)
    assert "tasks failed: non-finite loss" in row["reason"]
    watch.hook = lambda _outcome: None
    again = search(plain)
    assert (again.exit_code, chosen(again)) == (0, 1e-3)


def test_no_feasible_rate_ends_with_three_and_names_the_nearest_miss(make: Make) -> None:
    for kind in ("grid", "bracket"):
        result = search(make(search={"kind": kind, "rates": [3e-2, 1e-1, 1.0]}))
        (outcome,) = result.outcomes
        assert isinstance(outcome.choice, Infeasible)
        assert outcome.choice.nearest is not None
        assert outcome.choice.nearest.lr == 3e-2
        assert not [row for row in rows_of(result, "trials") if row["is_selected"]]


def test_each_data_set_has_a_rate_of_its_own(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_problems(tmp_path / "other.jsonl", [problem(n) for n in range(20, 29)])
    plain = make(search={"kind": "grid", "rates": [1e-3, 1e-2]})
    plain["data_sets"] = [*plain["data_sets"], {**plain["data_sets"][0], "path": str(other)}]
    result = search(plain)
    assert [outcome.study.data.loaded.name for outcome in result.outcomes] == ["animals", "other"]
    assert result.num_models_loaded == 1
    rates = {o.study.data.loaded.name: o.choice.cell.lr for o in result.outcomes if isinstance(o.choice, ChosenRate)}
    assert rates
    for one in plain["data_sets"]:
        name = Path(one["path"]).stem
        swept = settings(tmp_path / "sweeps", Path(plain["models"][0]["model"]), Path(one["path"]), name=f"s-{name}")
        del swept["rates"]
        swept |= {"lr": "selected", "lr_search": str(result.run.path)}
        if name in rates:
            assert {row["lr"] for row in rows_of(run(swept))} == {rates[name]}
        else:
            with pytest.raises(InfeasibleError, match=f"no feasible rate for tiny on {name}"):
                run(swept)


class TestSelected:
    """A sweep at the rate that a search selected."""

    @pytest.fixture
    def swept(self, make: Make, usual: tuple[SearchResult, Watch], tmp_path: Path) -> dict[str, Any]:
        plain = make(name="swept", output={"dir": str(tmp_path)}, lr="selected", lr_search=str(usual[0].run.path))
        return {name: value for name, value in plain.items() if name not in ("search", "min_problems")}

    def test_sweep_takes_it(self, swept: dict[str, Any], usual: tuple[SearchResult, Watch]) -> None:
        result = run(swept)
        assert {row["lr"] for row in rows_of(result)} == {1e-3}
        assert result.counts["ok"] == usual[0].outcomes[0].num_tasks_per_rate
        (study,) = open_finished(result.run, result.run.store(create=False), {})
        assert study.study.rates == (1e-3,)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"recipe": {"num_iterations": 2, "beta": 0.2}}, r"has another recipe \(beta 0.1 there, 0.2 here\)"),
            ({"recipe": {"num_iterations": 2, "method": {"kind": "lora"}}}, "has another recipe .*lora"),
            ({"models": [{"model": "MODEL", "name": "other"}]}, "did not search other on animals, but tiny on animals"),
            ({"lr_search": "nowhere"}, "lr_search: .*nowhere: there is no run here"),
        ],
    )
    def test_search_of_something_else_is_refused(
        self, swept: dict[str, Any], changes: dict[str, Any], message: str
    ) -> None:
        models = [{**one, "model": swept["models"][0]["model"]} for one in changes.get("models", swept["models"])]
        with pytest.raises(ConfigError, match=message):
            run({**swept, **changes, "models": models})
        assert not (Path(swept["output"]["dir"]) / "swept" / "store" / "unlearning").exists()

    def test_another_model_or_data_set_of_the_same_name_is_refused(
        self, swept: dict[str, Any], tiny_folder: Callable[[str], Path], tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigError, match="searched another version of model tiny"):
            run({**swept, "models": [{"model": str(tiny_folder("gpt2")), "name": "tiny"}]})
        path = write_problems(tmp_path / "animals.jsonl", [problem(n) for n in range(30, 39)])
        with pytest.raises(ConfigError, match="searched another version of data set animals"):
            run({**swept, "data_sets": [{**swept["data_sets"][0], "path": str(path)}]})

    def test_infeasible_and_unfinished_searches_are_named(
        self, swept: dict[str, Any], make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = make(search={"kind": "grid", "rates": [3e-2, 1e-1]})
        folder = Path(plain["output"]["dir"]) / "small"
        watch = watch_pools(monkeypatch, JOB_MODULE)
        watch.stop_after_groups(1, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            search(plain)
        with pytest.raises(ConfigError, match=r"lr_search: .*the search is not finished \(interrupted\)"):
            run({**swept, "lr_search": str(folder)})
        watch.hook = lambda _outcome: None
        search(plain)
        with pytest.raises(InfeasibleError, match=r"no feasible rate for tiny on animals; the nearest miss is 0.03"):
            run({**swept, "lr_search": str(folder)})

    def test_a_sweep_is_no_search(self, swept: dict[str, Any]) -> None:
        plain = {name: value for name, value in swept.items() if name not in ("lr", "lr_search")}
        made = run({**plain, "name": "plain", "rates": [1e-3]})
        with pytest.raises(ConfigError, match="no search is recorded here"):
            run({**swept, "lr_search": str(made.run.path)})


def test_the_lock_is_that_of_the_run(make: Make) -> None:
    plain = make()
    directory = RunDirectory(plain["output"]["dir"], "small")
    with directory.lock(), pytest.raises(Exception, match="another job writes this run"):
        search(plain)
