"""Trials on Ray Tune. A trial is a process of its own that holds nothing: it asks this process through a mailbox."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairwitness.errors import ResourceError
from fairwitness.fleet import code_path
from fairwitness.fleet.trials import Answer, Planner, Reply, Request, Shown
from fairwitness.fleet.worker import describe


class Mailbox:
    """Holds requests until they are taken and trials until they are answered. Runs as an asynchronous actor.

    Only plain values pass through it, so that a trial needs nothing but Ray.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._letters: dict[int, tuple[dict[str, Any], int]] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._has_letters = asyncio.Event()
        self._closed: str | None = None

    async def ask(self, settings: dict[str, Any], turn: int) -> dict[str, Any]:
        """Leaves a request and waits for its reply.

        Raises:
            RuntimeError: The mailbox is closed.
        """
        if self._closed is not None:
            raise RuntimeError(self._closed)
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._letters[number] = (settings, turn)
        self._has_letters.set()
        return await self._waiting[number]

    async def take(self, timeout_s: float) -> dict[int, tuple[dict[str, Any], int]]:
        """Takes all requests that are there, by number; waits for the first one, but not longer than the time given."""
        try:
            await asyncio.wait_for(self._has_letters.wait(), timeout_s)
        except TimeoutError:
            return {}
        taken, self._letters = self._letters, {}
        self._has_letters.clear()
        return taken

    async def reply(self, replies: Mapping[int, dict[str, Any]]) -> None:
        """Answers requests that were taken."""
        for number, reply in replies.items():
            future = self._waiting.pop(number)
            if not future.done():
                future.set_result(reply)

    async def close(self, reason: str) -> None:
        """Sends every trial that waits, and every one that comes, away."""
        self._closed = reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeError(reason))
        self._waiting.clear()
        self._letters.clear()


_log = logging.getLogger(__name__)
_POLL_S = 0.5
_STOP_S = 30.0
_SHARE_OF_NODE = 0.001
_STOPPED = "the search was stopped"
_REMEDY = "start the same job again, or use --pool local"


class PlannedSearcher(Searcher):
    """A planner as Ray Tune asks it. Its state is JSON: what finished trials have shown, and which are to run.

    A trial that was running when the state was saved is suggested again after it is restored.
    """

    def __init__(self, planner: Planner, max_concurrent: int) -> None:
        """Plans nothing yet; at most `max_concurrent` trials will run at once."""
        super().__init__()
        self._planner, self._max_concurrent = planner, max_concurrent
        self._done: list[Shown] = []
        self._queue: list[dict[str, Any]] = []
        self._running: dict[str, dict[str, Any]] = {}

    def suggest(self, trial_id: str) -> Any:
        """The settings of the next trial; None while it has to wait, `FINISHED` when there is none."""
        if not self._queue and not self._running:
            self._queue = [dict(settings) for settings in self._planner.plan(self._done)]
            if not self._queue:
                return Searcher.FINISHED
        if not self._queue or len(self._running) >= self._max_concurrent:
            return None
        self._running[trial_id] = self._queue.pop(0)
        return self._running[trial_id]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Notes what a finished trial has shown. One that was stopped stays on the list of those to run."""
        if not error and _is_over(result) and trial_id in self._running:
            assert result is not None
            del self._running[trial_id]
            self._done.append(json.loads(result["shown"]))

    def save(self, checkpoint_path: str) -> None:
        """Writes the state."""
        state = {"done": self._done, "queue": [*self._running.values(), *self._queue]}
        Path(checkpoint_path).write_text(json.dumps(state), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Reads the state."""
        state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        self._done, self._queue, self._running = state["done"], state["queue"], {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Takes nothing from Tune: the planner knows what it looks for."""
        return True


def run_trials_on_tune(planner: Planner, answer: Answer, *, folder: Path, max_concurrent: int) -> list[Shown]:
    """Runs a search on Ray Tune, or what a killed driver left of it. Ray must be connected.

    Trials that finished before are not run again. Requests that wait at the same time are answered together, in this
    thread.

    What `answer` raises ends the search, which can then be gone on with. `folder` is where Tune keeps its state, on
    this machine; it is removed when the search is done.

    Returns:
        What each finished trial has shown, in the order in which they ended.

    Raises:
        ResourceError: Ray Tune gave up.
    """
    shown = _run(planner, answer, folder, max_concurrent)
    if planner.plan(shown):
        # A trial's process died, or the state was saved while another search was being stopped: Tune then ends with
        # what it has. Starting over costs questions only, if what was measured is kept by who answers them.
        _log.warning("Ray Tune ended before the search was over; it starts over")
        shown = _run(planner, answer, folder, max_concurrent)
    if planner.plan(shown):
        raise ResourceError(f"Ray Tune ended twice before the search was over; {_REMEDY}")
    return shown


def _run(planner: Planner, answer: Answer, folder: Path, max_concurrent: int) -> list[Shown]:
    mailbox = _place_mailbox()
    fitting = _Fitting(_tuner(planner, _trial(mailbox), folder, max_concurrent))
    fitting.start()
    try:
        while fitting.is_alive():
            _serve(mailbox, answer)
    except BaseException:
        _stop(mailbox, fitting)
        # A state with a failed trial in it would end at once when it is restored.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        ray.kill(mailbox)
    shutil.rmtree(folder, ignore_errors=True)
    return fitting.shown()


def _stop(mailbox: Any, fitting: threading.Thread) -> None:
    """Ends Tune: trials that are sent away fail, and the first failure ends it. It need not say so."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        ray.get(mailbox.close.remote(_STOPPED))
        fitting.join(_STOP_S)
    finally:
        logger.setLevel(level)


class _Fitting(threading.Thread):
    """Tune in a thread of its own: the main thread measures, and is the one that signals reach."""

    def __init__(self, tuner: tune.Tuner) -> None:
        super().__init__(name="tune", daemon=True)
        self._tuner = tuner
        self._results: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._results = self._tuner.fit()
        except Exception as error:  # noqa: BLE001 (whatever Tune raises is told by the main thread)
            self._error = error

    def shown(self) -> list[Shown]:
        if self._results is None or self._error is not None:
            cause = describe(self._error) if self._error else "it did not end"
            raise ResourceError(f"Ray Tune gave up: {cause}; {_REMEDY}")
        ended = [result.metrics for result in self._results if _is_over(result.metrics)]
        return [json.loads(metrics["shown"]) for metrics in sorted(ended, key=lambda metrics: metrics["timestamp"])]


def _serve(mailbox: Any, answer: Answer) -> None:
    letters = ray.get(mailbox.take.remote(_POLL_S))
    if letters:
        requests = [Request(settings, turn) for settings, turn in letters.values()]
        replies = [_plain(reply) for reply in answer(requests)]
        ray.get(mailbox.reply.remote(dict(zip(letters, replies, strict=True))))


def _plain(reply: Reply) -> dict[str, Any]:
    # Tune takes nested values apart; text it leaves alone.
    return {"shown": json.dumps(dict(reply.shown)), "is_over": reply.is_over}


def _is_over(result: Mapping[str, Any] | None) -> bool:
    return bool(result and result.get("is_over"))


def _trial(mailbox: Any) -> Callable[[dict[str, Any]], None]:
    """The function that Tune runs in a trial's process. It travels by value and needs nothing of ours there."""

    def trial(config: dict[str, Any]) -> None:
        turn = 0
        while True:
            reply = ray.get(mailbox.ask.remote(config, turn))
            tune.report(reply)
            if reply["is_over"]:
                return
            turn += 1

    return trial


def _tuner(planner: Planner, trial: Callable[[dict[str, Any]], None], folder: Path, max_concurrent: int) -> tune.Tuner:
    # State is saved every second; Tune's own choice is so rare that a killed driver would start over.
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "1"
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    # Beside a searcher Tune starts one process at a time, so that short trials would run one after another.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max_concurrent)
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    trainable = tune.with_resources(trial, {"cpu": 0, _this_node(): _SHARE_OF_NODE})
    if tune.Tuner.can_restore(str(folder)):
        try:
            # What ran is suggested again by the searcher, so Tune need not.
            return tune.Tuner.restore(str(folder), trainable=trainable, resume_unfinished=False)
        except Exception as error:  # noqa: BLE001 (a state of another version fails in any way; nothing is lost by it)
            _log.warning("the state of the search cannot be used (%s); it starts over", describe(error))
    shutil.rmtree(folder, ignore_errors=True)
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=PlannedSearcher(planner, max_concurrent), num_samples=-1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.resolve()),
            failure_config=tune.FailureConfig(fail_fast=True),
            verbose=0,
        ),
    )


def _place_mailbox() -> Any:
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": here}
    actor_env = code_path.actor_runtime_env(os.environ.get("PYTHONPATH"))
    if actor_env:
        options["runtime_env"] = actor_env
    return ray.remote(Mailbox).options(**options).remote()


def _this_node() -> str:
    """The resource that stands for this machine: a share of it places trials here without taking a CPU."""
    own = ray.get_runtime_context().get_node_id()
    (resources,) = (node["Resources"] for node in ray.nodes() if node["NodeID"] == own)
    return next(str(name) for name in sorted(resources) if name.startswith("node:") and "__" not in name)
