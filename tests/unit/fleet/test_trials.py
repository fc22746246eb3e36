"""Trials without Ray, the mailbox, and the searcher that Ray Tune asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fairwitness.fleet.trials import Reply, Request, run_trials
from fairwitness.fleet.tune_trials import Mailbox
from tests.unit.fleet.planners import FivePlanner


def test_trials_go_turn_by_turn_until_they_are_over() -> None:
    asked: list[tuple[int, int]] = []

    def answer(requests: Sequence[Request]) -> list[Reply]:
        (request,) = requests
        x, turn = request.settings["x"], request.turn
        asked.append((x, turn))
        return [Reply({"x": x, "turn": turn}, is_over=turn == x % 3)]

    assert run_trials(FivePlanner(), answer) == [
        {"x": 0, "turn": 0},
        {"x": 1, "turn": 1},
        {"x": 2, "turn": 2},
        {"x": 3, "turn": 0},
        {"x": 4, "turn": 1},
    ]
    assert asked == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0), (4, 1)]


def test_error_of_an_answer_ends_the_search() -> None:
    def answer(_requests: Sequence[Request]) -> list[Reply]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_trials(FivePlanner(), answer)


def test_mailbox_hands_over_requests_and_replies() -> None:
    async def scene() -> None:
        box = Mailbox()
        assert await box.take(0.01) == {}
        trials = [asyncio.create_task(box.ask({"x": x}, 0)) for x in (1, 2)]
        await asyncio.sleep(0)
        letters = await box.take(1.0)
        assert list(letters.values()) == [({"x": 1}, 0), ({"x": 2}, 0)]
        assert await box.take(0.01) == {}
        await box.reply({number: {"got": settings["x"]} for number, (settings, _) in letters.items()})
        assert await asyncio.gather(*trials) == [{"got": 1}, {"got": 2}]

    asyncio.run(scene())


def test_closed_mailbox_sends_trials_away() -> None:
    async def scene() -> None:
        box = Mailbox()
        waiting = asyncio.create_task(box.ask({"x": 1}, 0))
        await asyncio.sleep(0)
        await box.close("stopped")
        for trial in (waiting, box.ask({"x": 2}, 0)):
            with pytest.raises(RuntimeError, match="stopped"):
                await trial
        assert await box.take(0.01) == {}

    asyncio.run(scene())


class TestSearcher:
    """`PlannedSearcher`, asked as Tune asks it."""

    @pytest.fixture
    def make(self) -> Any:
        from fairwitness.fleet.tune_trials import PlannedSearcher

        return lambda max_concurrent=2: PlannedSearcher(FivePlanner(), max_concurrent)

    @staticmethod
    def ends(searcher: Any, trial: str, x: int) -> None:
        searcher.on_trial_complete(trial, {"shown": json.dumps({"x": x}), "is_over": True, "time_total_s": 1.0})

    def test_rounds_and_concurrency(self, make: Any) -> None:
        searcher = make()
        assert [searcher.suggest(name) for name in "abc"] == [{"x": 0}, {"x": 1}, None]
        self.ends(searcher, "b", 1)
        assert searcher.suggest("c") == {"x": 2}
        self.ends(searcher, "c", 2)
        # Nothing of the next round before the last trial of this one has ended.
        assert searcher.suggest("d") is None
        self.ends(searcher, "a", 0)
        assert [searcher.suggest(name) for name in "def"] == [{"x": 3}, {"x": 4}, None]
        self.ends(searcher, "d", 3)
        self.ends(searcher, "e", 4)
        assert searcher.suggest("f") == "FINISHED" or searcher.suggest("f") is None

    def test_state_is_json_and_what_ran_is_to_run_again(self, make: Any, tmp_path: Path) -> None:
        searcher = make()
        searcher.suggest("a")
        searcher.suggest("b")
        self.ends(searcher, "a", 0)
        searcher.on_trial_complete("b", None, error=True)
        searcher.save(str(tmp_path / "state"))
        assert json.loads((tmp_path / "state").read_text())["done"] == [{"x": 0}]
        again = make()
        again.restore(str(tmp_path / "state"))
        assert [again.suggest(name) for name in "cd"] == [{"x": 1}, {"x": 2}]
        # Trials of before that end late change nothing.
        self.ends(again, "b", 1)
        self.ends(again, "c", 1)
        self.ends(again, "d", 2)
        assert again.suggest("e") == {"x": 3}

    def test_trial_that_ended_early_is_not_done(self, make: Any) -> None:
        searcher = make(1)
        searcher.suggest("a")
        searcher.on_trial_complete("a", {"shown": "{}", "is_over": False})
        assert searcher.suggest("b") is None
