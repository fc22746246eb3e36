"""Small FUR sweeps: data files, configurations, scripted CoTs, watched pools, and rows to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import EngineSpec, Outcome, Pool
from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.sweep import FurSweep
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.generation import Generation
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode, encode
from fairwitness.records.store import Store
from fairwitness_schemas import TABLES

RATES = (1e-3, 1e-2)
NUM_PROBLEMS, NUM_HELD_OUT = 5, 4
TWO_STEPS = "Foxes dig deep dens. A red fox sleeps in a warm den."
"""A CoT of two eligible steps."""

Row = dict[str, Any]


def problem(number: int, **changes: Any) -> Row:
    """A record of four choices with a question of its own; `changes` replace fields."""
    record = {
        "id": f"p{number}",
        "question": f"Which animal number {number} sleeps in the forest?",
        "choices": ["red fox", "grey owl", "brown bear", "green frog"],
        "answer": "ABCD"[number % 4],
    }
    return {**record, **changes}


def write_problems(path: Path, records: Iterable[Row] | None = None) -> Path:
    """Writes records as JSONL; by default just as many as a small sweep needs."""
    if records is None:
        records = [problem(number) for number in range(NUM_PROBLEMS + NUM_HELD_OUT)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def settings(output: Path, model: Path, data: Path, /, **changes: Any) -> dict[str, Any]:
    """Plain settings of a small sweep without Ray and MLflow; `changes` are merged, mappings key by key."""
    base: dict[str, Any] = {
        "name": "small",
        "models": [{"model": str(model), "name": "tiny"}],
        "data_sets": [
            {
                "data_set": "local",
                "path": str(data),
                "num_problems": NUM_PROBLEMS,
                "num_held_out": NUM_HELD_OUT,
                "fields": {"id": "id"},
            }
        ],
        "rates": list(RATES),
        "recipe": {"num_iterations": 2},
        "cot": {"max_new_tokens": 24},
        "measure": {"disagreeing": True},
        "pool": {"kind": "local"},
        "output": {"dir": str(output)},
        "tracking": {"enabled": False},
    }
    return merged(base, changes)


def config_of(plain: Mapping[str, Any]) -> FurSweepConfig:
    """The checked configuration."""
    return validate(FurSweepConfig, plain, "test")


def run(plain: Mapping[str, Any]) -> JobResult:
    """Runs a sweep without a report."""
    return run_measure(FurSweep(config_of(plain), Supplies()), lambda _measure: Report((), ()))


def store_of(plain: Mapping[str, Any]) -> Path:
    """Where the store of a sweep with these settings is."""
    return Path(plain["output"]["dir"]) / str(plain["name"]) / "store"


def rows_of(result: JobResult | Path, table: str = "unlearning") -> list[Row]:
    """The rows that count of a run's table."""
    folder = result if isinstance(result, Path) else result.run.store_path
    rows: list[Row] = Store(folder, create=False).read(table).to_pylist()
    return rows


def measurements(
    rows: Iterable[Row], *by: str, table: str = "unlearning", leave_out: Sequence[str] = ()
) -> dict[Any, Row]:
    """Rows without volatile columns (and those of `leave_out`), by the values of some columns (by default the key)."""
    names = by or ("key",)
    dropped = {*TABLES[table].volatile, *leave_out}
    found: dict[Any, Row] = {}
    for row in rows:
        place = tuple(row[name] for name in names)
        assert place not in found, f"two rows of {table} at {place}"
        found[place] = {name: value for name, value in row.items() if name not in dropped}
    return found


def assert_same(
    found: Mapping[Any, Row], expected: Mapping[Any, Row], *, rel: float = 1e-5, abs_: float = 1e-6
) -> None:
    """Same places, same columns; floats may differ by `rel`, or by `abs_` where they are differences close to 0."""
    assert found.keys() == expected.keys()
    for place, row in expected.items():
        for column, value in row.items():
            assert _close(found[place][column], value, rel, abs_), (place, column, found[place][column], value)


def _close(found: Any, expected: Any, rel: float, abs_: float) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(found, expected, rel_tol=rel, abs_tol=abs_)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(
            _close(a, b, rel, abs_) for a, b in zip(found, expected, strict=True)
        )
    return bool(found == expected)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes, mappings key by key."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


class WatchedPool:
    """A pool that notes every item it is given and lets a hook see every outcome before the job does."""

    def __init__(self, inner: Pool, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    @property
    def num_builds(self) -> int:
        return self._inner.num_builds

    def map(self, spec: EngineSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        for outcome in self._inner.map(spec, self._noted(items)):
            yield self._watch.hook(outcome) or outcome

    def close(self) -> None:
        self._inner.close()

    def _noted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._watch.items.append(item)
            yield item


class Watch:
    """What went through the pools of a test.

    Attributes:
        items: Every item, in order.
        hook: Sees every outcome; may raise, or return another one.
    """

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.hook: Callable[[Outcome], Outcome | None] = lambda _outcome: None

    @property
    def groups(self) -> list[UnlearnGroup]:
        """The groups among the items."""
        return [item for item in self.items if isinstance(item, UnlearnGroup)]

    @property
    def task_keys(self) -> list[str]:
        """Every task that was sent to an engine, as often as it was sent."""
        return [task.task_key for group in self.groups for task in group.tasks]

    def stop_after_groups(self, number: int, error: BaseException) -> None:
        """Raises as soon as this many groups have come back, before the last of them is stored."""
        seen = 0

        def hook(outcome: Outcome) -> None:
            nonlocal seen
            if self.items and isinstance(self.items[-1], UnlearnGroup):
                seen += 1
                if seen == number:
                    raise error

        self.hook = hook


def watch_pools(monkeypatch: pytest.MonkeyPatch, module: str = "fairwitness.experiment.measure") -> Watch:
    """Puts a `WatchedPool` around every pool that the module opens."""
    watch = Watch()

    @contextmanager
    def watched(config: PoolConfig) -> Iterator[Pool]:
        with make_pool(config) as pool:
            yield WatchedPool(pool, watch)

    monkeypatch.setattr(f"{module}.make_pool", watched)
    return watch


def script_cots(monkeypatch: pytest.MonkeyPatch, texts: Mapping[str, str | None], default: str = TWO_STEPS) -> None:
    """Replaces the model's CoTs (not its answers) in this process.

    Args:
        monkeypatch: Takes the replacement back.
        texts: Part of the question to the CoT's text; empty for a model that ends at once, None for its real CoT.
        default: The CoT of any other question.
    """
    from fairwitness.lm import generation

    def scripted(lm: LanguageModel, prompts: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> list[Generation]:
        real = generation.generate_greedy(lm, prompts, *args, **kwargs)
        found = []
        for prompt, own in zip(prompts, real, strict=True):
            question = decode(lm.tokenizer, prompt)
            text = next((value for part, value in texts.items() if part in question), default)
            ids = () if text is None else tuple(encode(lm.tokenizer, text))
            found.append(own if text is None else Generation(ids, "blank_line"))
        return found

    monkeypatch.setattr("fairwitness.chains.items.generate_greedy", scripted)
