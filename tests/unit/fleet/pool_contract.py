"""What every pool must do. `test_local_pool.py` and `test_ray_pool.py` run it, each with its own `pool`."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import pytest

from fairwitness.errors import DataError, FairwitnessError, ModelError
from fairwitness.fleet.pool import Pool
from tests.unit.fleet.fleet_engines import AdderSpec, DoerSpec, FailingSpec


class PoolContract:
    """Tests of the `Pool` protocol; subclasses give a `pool` fixture and what it was made with."""

    max_actors: int
    in_flight_per_actor: int

    def test_every_item_has_one_outcome(self, pool: Pool) -> None:
        outcomes = list(pool.map(AdderSpec(100), range(25)))
        assert sorted(outcome.index for outcome in outcomes) == list(range(25))
        assert all(outcome.value == outcome.index + 100 for outcome in outcomes)
        assert all(outcome.error is None and outcome.num_attempts == 1 for outcome in outcomes)
        assert all(outcome.worker and outcome.duration_s >= 0 for outcome in outcomes)

    def test_no_items_need_no_engine(self, pool: Pool) -> None:
        before = pool.num_builds
        assert list(pool.map(FailingSpec("model"), [])) == []
        assert pool.num_builds == before

    def test_items_are_drawn_lazily(self, pool: Pool) -> None:
        drawn = 0

        def items() -> itertools.count[int]:
            nonlocal drawn
            for item in itertools.count():
                drawn += 1
                yield item

        iterator = pool.map(AdderSpec(1), items())
        assert drawn == 0
        outcomes = list(itertools.islice(iterator, 10))
        assert len({outcome.index for outcome in outcomes}) == 10
        assert drawn <= 10 + 2 * self.in_flight_per_actor * self.max_actors
        iterator.close()

    def test_engine_is_kept_until_the_spec_differs(self, pool: Pool, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        list(pool.map(AdderSpec(7, str(closed)), [0]))
        before = pool.num_builds
        again = list(pool.map(AdderSpec(7, str(closed)), [1]))
        assert [outcome.value for outcome in again] == [8]
        assert pool.num_builds == before
        assert not closed.exists()
        other = list(pool.map(AdderSpec(8), [1]))
        assert [outcome.value for outcome in other] == [9]
        assert pool.num_builds == before + 1

    def test_old_engine_is_closed_first(self, pool: Pool, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        for amount in (1, 2, 3):
            list(pool.map(AdderSpec(amount, str(closed)), [0]))
        assert closed.read_text(encoding="utf-8").split()[:2] == ["1", "2"]

    def test_expected_error_of_an_item_is_its_message(self, pool: Pool) -> None:
        items = [("echo", 1), ("refuse",), ("echo", 2)]
        outcomes = sorted(pool.map(DoerSpec(), items), key=lambda outcome: outcome.index)
        assert [outcome.value for outcome in outcomes] == [1, None, 2]
        assert [outcome.error for outcome in outcomes] == [None, "the CoT has no sentence", None]
        assert [outcome.num_attempts for outcome in outcomes] == [1, 1, 1]

    def test_unexpected_error_of_an_item_is_one_line(self, pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
        (outcome,) = pool.map(DoerSpec(), [("break",)])
        assert outcome.error == "KeyError: 'no such\\nlayer'"
        assert "Traceback" in caplog.text
        assert "_break" in caplog.text

    @pytest.mark.parametrize(
        ("kind", "error", "message"),
        [
            ("model", ModelError, "model.safetensors is missing"),
            ("data", DataError, "facts.jsonl is empty"),
            ("other", ModelError, "FailingSpec cannot be built: OSError: disk broken"),
        ],
    )
    def test_build_error_is_raised_once(
        self, pool: Pool, kind: str, error: type[FairwitnessError], message: str
    ) -> None:
        before = pool.num_builds
        iterator = pool.map(FailingSpec(kind), range(100))
        with pytest.raises(error, match=message):
            next(iterator)
        assert list(iterator) == []
        assert pool.num_builds == before

    def test_pool_works_after_a_build_error(self, pool: Pool) -> None:
        with pytest.raises(ModelError):
            list(pool.map(FailingSpec("model"), [1]))
        assert [outcome.value for outcome in pool.map(AdderSpec(1), [1])] == [2]

    def test_one_map_at_a_time(self, pool: Pool) -> None:
        first = pool.map(AdderSpec(1), range(5))
        next(first)
        with pytest.raises(RuntimeError, match="one call of map at a time"):
            next(pool.map(AdderSpec(2), range(5)))
        first.close()
        assert [outcome.value for outcome in pool.map(AdderSpec(2), [5])] == [7]

    def test_an_error_of_the_items_comes_through(self, pool: Pool) -> None:
        def items() -> itertools.chain[int]:
            yield 1
            raise LookupError("no more rows")

        with pytest.raises(LookupError, match="no more rows"):
            list(pool.map(AdderSpec(1), items()))
        assert [outcome.value for outcome in pool.map(AdderSpec(1), [1])] == [2]

    def test_outcomes_are_picklable(self, pool: Pool) -> None:
        outcomes = list(pool.map(DoerSpec(), [("echo", {"a": 1}), ("refuse",)]))
        assert pickle.loads(pickle.dumps(outcomes)) == outcomes

    def test_threads_are_those_of_the_settings(self, pool: Pool) -> None:
        (outcome,) = pool.map(DoerSpec(), [("see",)])
        assert outcome.value["OMP_NUM_THREADS"] == "1"
