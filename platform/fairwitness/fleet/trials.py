"""Trials of a search: light coordinators that ask one owner of everything expensive, turn by turn.

A planner says which trials come next; the owner answers each turn of each trial and says when it is over. Here they run
one after another in this process; `tune_trials` runs them on Ray Tune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Settings = Mapping[str, Any]
"""What a trial is: plain values with text keys, as in JSON."""

Shown = Mapping[str, Any]
"""What a trial has shown: plain values with text keys, as in JSON."""


@dataclass(frozen=True)
class Request:
    """A trial's question: what its next turn shows. Turns count from 0; a trial may start again from 0 at any time."""

    settings: Settings
    turn: int


@dataclass(frozen=True)
class Reply:
    """What a trial has shown up to and including a turn, and whether that was its last one."""

    shown: Shown
    is_over: bool


Answer = Callable[[Sequence[Request]], Sequence[Reply]]
"""Answers the requests of different trials together, in their order."""


class Planner(Protocol):
    """Plans trials in rounds. Picklable; its plans depend on what finished trials have shown, and on nothing else."""

    def plan(self, done: Sequence[Shown]) -> Sequence[Settings]:
        """The trials of the next round; none when the search is over. Asked for when no trial runs.

        `done` is what each finished trial has shown, in any order.
        """


def run_trials(planner: Planner, answer: Answer) -> list[Shown]:
    """Runs a search in this process, one trial after another.

    `answer` answers the trials' requests; what it raises ends the search.

    Returns:
        What each trial has shown, in the order in which they ran.
    """
    done: list[Shown] = []
    while planned := planner.plan(done):
        done += [_run_trial(settings, answer) for settings in planned]
    return done


def _run_trial(settings: Settings, answer: Answer) -> Shown:
    turn = 0
    while True:
        (reply,) = answer([Request(settings, turn)])
        if reply.is_over:
            return reply.shown
        turn += 1
