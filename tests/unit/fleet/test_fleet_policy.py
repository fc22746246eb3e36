"""The policies of a pool: how many workers, how deep, which item next; and its settings."""

from __future__ import annotations

import pytest

from fairwitness.config import validate
from fairwitness.errors import ConfigError
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.crew import Load, depth, num_to_end, num_to_start, num_wanted
from fairwitness.fleet.feed import Feed


@pytest.mark.parametrize(
    ("load", "least", "most", "number"),
    [
        (Load(num_waiting=0, num_free=0, num_coming=0, num_workers=0), 2, 8, 2),
        (Load(num_waiting=10, num_free=0, num_coming=0, num_workers=2), 2, 8, 6),
        (Load(num_waiting=3, num_free=1, num_coming=1, num_workers=2), 1, 8, 1),
        (Load(num_waiting=3, num_free=2, num_coming=1, num_workers=3), 1, 8, 0),
        (Load(num_waiting=9, num_free=0, num_coming=0, num_workers=8), 1, 8, 0),
        (Load(num_waiting=0, num_free=4, num_coming=0, num_workers=4), 1, 8, 0),
    ],
)
def test_num_to_start(load: Load, least: int, most: int, number: int) -> None:
    assert num_to_start(load, least, most) == number


def test_num_wanted_is_never_negative() -> None:
    assert num_wanted(Load(num_waiting=1, num_free=3, num_coming=2, num_workers=5)) == 0


@pytest.mark.parametrize(("workers", "dispensable", "least", "number"), [(5, 4, 2, 3), (5, 2, 1, 2), (1, 1, 1, 0)])
def test_num_to_end_keeps_the_minimum(workers: int, dispensable: int, least: int, number: int) -> None:
    assert num_to_end(workers, dispensable, least) == number


@pytest.mark.parametrize("reason", ["is_exhausted", "is_alone", "is_help_coming"])
def test_depth_is_one_for_any_reason(reason: str) -> None:
    reasons = dict.fromkeys(["is_exhausted", "is_alone", "is_help_coming"], False)
    assert depth(4, **reasons) == 4
    assert depth(4, **{**reasons, reason: True}) == 1


def test_feed_draws_no_more_than_its_bound() -> None:
    feed = Feed("abcd", bound=2)
    assert [feed.draw(), feed.draw(), feed.draw()] == [True, True, False]
    first = feed.take(1.0)
    assert (first.index, first.item, first.num_attempts, first.handed_at_s) == (0, "a", 1, 1.0)
    assert not feed.draw()
    feed.settle()
    assert feed.draw()
    assert feed.num_waiting == 2
    assert not feed.is_exhausted


def test_feed_is_done_when_all_is_settled() -> None:
    feed = Feed(["a"], bound=2)
    assert feed.draw()
    assert not feed.draw()
    assert feed.is_exhausted
    feed.take(0.0)
    assert not feed.is_done
    feed.settle()
    assert feed.is_done


def test_feed_gives_a_returned_item_next_and_alone() -> None:
    feed = Feed("abc", bound=3)
    while feed.draw():
        pass
    ticket = feed.take(0.0)
    assert not feed.is_next_alone
    feed.put_back(ticket)
    assert feed.is_next_alone
    again = feed.take(5.0)
    assert (again.index, again.num_attempts, again.handed_at_s) == (0, 2, 5.0)
    assert not feed.is_next_alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_actors": 3, "max_actors": 2}, "max_actors .2. is below min_actors .3."),
        ({"num_gpus_per_actor": 1.5}, "num_gpus_per_actor is 1.5; above 1 it must be a whole number"),
        ({"max_actors": 0}, "max_actors"),
        ({"min_actor": 1}, "did you mean 'min_actors'"),
        ({"kind": "slurm"}, "'ray' or 'local'"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"start_timeout_s": 0.0}, "start_timeout_s"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(PoolConfig, settings, "pool.yaml")


def test_no_retry_means_no_second_item_in_flight() -> None:
    assert PoolConfig(in_flight_per_actor=4).depth == 4
    assert PoolConfig(in_flight_per_actor=4, max_attempts=1).depth == 1
