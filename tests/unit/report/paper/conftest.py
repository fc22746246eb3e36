"""A run written by hand, small enough to know every figure of its tables.

Per model and data set four problems; p0 to p2 agree, with two steps each, p3 does not. At three rates efficacy is 0.1,
0.5 and 0.8 and specificity 1, 0.95 and 0.5 throughout, so that the rule takes the middle one. Unlearning changes no
answer at the lowest rate; at the middle one that of p0 by its first step, in passing; at the highest those of
p0 and p1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairwitness.records.store import Store
from fairwitness.report.paper.data import PaperData, load_paper

LOW, MIDDLE, HIGH = 1e-5, 3e-5, 1e-4
EFFICACY = {LOW: 0.1, MIDDLE: 0.5, HIGH: 0.8}
SPECIFICITY = {LOW: 1.0, MIDDLE: 0.95, HIGH: 0.5}
FLIPS = {LOW: {}, MIDDLE: {(0, 0): (1,)}, HIGH: {(0, 0): (1, 2), (1, 1): (2,)}}
"""Rate → (problem, step) → iterations after which the answer is another one."""
HOSTILE = '<script>alert("x")</script> & {{ 7*7 }} 哪一种气体?'
MODELS, DATA_SETS = ("LLaMA-8B", "own"), ("arc_challenge", "pets")
GOLD = "AABB"
STARTED = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Row = dict[str, Any]
Method = tuple[str, int | None]


def write_run(
    root: Path,
    name: str = "hand",
    *,
    models: Sequence[str] = MODELS,
    data_sets: Sequence[str] = DATA_SETS,
    methods: Sequence[Method] = (("ff2", None),),
    rates: Sequence[float] = (LOW, MIDDLE, HIGH),
    code: str = "",
    tables: Mapping[str, Sequence[Row]] | None = None,
) -> Path:
    """Writes a run directory and returns it.

    Args:
        root: Where runs lie.
        name: Name of the run.
        models: Names of the models.
        data_sets: Names of the data sets.
        methods: Ways of changing weights.
        rates: Learning rates.
        code: Mixed into the keys, for a run of its own.
        tables: Rows of other tables.
    """
    run_dir = root / name
    cells: list[str] = []
    with Store(run_dir / "store") as store:
        for data_set in data_sets:
            store.append("problems", [_problem(data_set, number) for number in range(4)])
            for model in models:
                cells += _write_panel(store, model, data_set, methods, rates, code)
        scopes = [scope_key(model, data_set, code) for model in models for data_set in data_sets]
        store.append("runs", [_run_row(name, models, data_sets, scopes, cells)])
        for table, rows in (tables or {}).items():
            store.append(table, list(rows))
    return run_dir


def scope_key(model: str, data_set: str, code: str = "") -> str:
    return f"scope-{model}-{data_set}{code}"


def cell_key(model: str, data_set: str, lr: float, method: Method = ("ff2", None), code: str = "") -> str:
    return f"cell-{model}-{data_set}-{method[0]}{method[1] or ''}-{lr:g}{code}"


@pytest.fixture(scope="session")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run with two models and two data sets."""
    return write_run(tmp_path_factory.mktemp("hand"))


@pytest.fixture(scope="session")
def hand_data(hand: Path) -> PaperData:
    """The same, read."""
    return load_paper([hand])


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Writes a run."""
    return write_run


def _problem(data_set: str, number: int) -> Row:
    return {
        "key": f"problem-{data_set}-{number}",
        "data_set": data_set,
        "data_revision": "r1",
        "split": "test",
        "problem_id": f"p{number}",
        "question": HOSTILE if number == 0 else f"Question {number}?",
        "choices": ["<b>one</b>", "two"],
        "gold": GOLD[number],
        "status": "ok",
    }


def _write_panel(
    store: Store, model: str, data_set: str, methods: Sequence[Method], rates: Sequence[float], code: str
) -> list[str]:
    scope = {"scope_key": scope_key(model, data_set, code), "data_set": data_set, "model": model}
    for number in range(4):
        names = {"problem_key": f"problem-{data_set}-{number}", "problem_id": f"p{number}"}
        num_steps = 3 if number == 3 else 2
        texts = [f" Step {step} of <i>p{number}</i>." for step in range(num_steps)]
        key = f"cot-{scope['scope_key']}-{number}"
        cot = {
            "key": key,
            **scope,
            **names,
            "model_revision": "m1",
            "prompt_style": "plain",
            "cot_text": "".join(texts),
            "finish": "eos",
            "direct_letter": "A",
            "direct_probs": [0.7, 0.3],
            "direct_letter_mass": 0.9,
            "cot_letter": "B" if number == 3 else "A",
            "cot_letter_mass": 0.9,
            "agree": number != 3,
            "num_cot_steps": num_steps,
            "status": "ok",
        }
        store.append("cots", [cot])
        store.append("cot_steps", [_step(scope, key, number, step, text) for step, text in enumerate(texts)])
        for method in methods:
            for lr in rates:
                base = scope | names | {"model_revision": "m1", "method": method[0], "lora_rank": method[1], "lr": lr}
                base |= {"cell_key": cell_key(model, data_set, lr, method, code), "attempt": 1}
                for step in range(num_steps):
                    store.append("unlearning", _task(base, number, step))
    return [cell_key(model, data_set, lr, method, code) for method in methods for lr in rates]


def _step(scope: Row, cot_key: str, number: int, step: int, text: str) -> Row:
    names = {name: scope[name] for name in ("scope_key", "data_set")}
    return {
        "key": f"{cot_key}-{step}",
        **names,
        "cot_key": cot_key,
        "problem_id": f"p{number}",
        "cot_step_index": step,
        "char_start": step * len(text),
        "char_end": (step + 1) * len(text),
        "text": text,
        "eligible": True,
        "base_logprob": -0.5,
        "status": "ok",
    }


def _task(base: Row, number: int, step: int) -> list[Row]:
    task = f"{base['cell_key']}-{number}-{step}"
    base = base | {"task_key": task, "cot_step_index": step}
    if number == 3:
        return [{**base, "key": task, "iteration": 0, "status": "skipped", "reason": "direct and CoT answers differ"}]
    lr = base["lr"]
    rows = []
    for iteration in (1, 2):
        flipped = iteration in FLIPS[lr].get((number, step), ())
        last_of_first = iteration == 2 and (number, step) == (0, 0)
        rows.append(
            base
            | {
                "key": f"{task}-{iteration}",
                "iteration": iteration,
                "base_letter": "A",
                "base_probs": [0.7, 0.3],
                "predicted_letter": "B" if flipped else "A",
                "probs": [0.2, 0.8] if flipped else [0.6, 0.4],
                "letter_mass": 0.9,
                "flipped": flipped,
                "efficacy": EFFICACY[lr],
                "specificity": SPECIFICITY[lr],
                "num_held_out": 20,
                "cot_after_text": " Now <b>another</b> way." if last_of_first else None,
                "status": "ok",
            }
        )
    return rows


def _run_row(
    name: str, models: Sequence[str], data_sets: Sequence[str], scopes: Sequence[str], cells: Sequence[str]
) -> Row:
    return {
        "key": f"run-{name}",
        "name": name,
        "job": "fur_sweep",
        "created_at": STARTED,
        "finished_at": STARTED + timedelta(minutes=1),
        "config_json": json.dumps({"name": name, "seed": 3, "min_specificity": 95.0}),
        "models": [f"{model}@m1" for model in models],
        "data_sets": [f"{data_set}@r1" for data_set in data_sets],
        "scope_keys": list(scopes),
        "cell_keys": list(cells),
        "exit_code": 0,
        "status": "done",
    }


def further_problems(model: str, data_set: str, numbers: Sequence[int]) -> dict[str, list[Row]]:
    """Rows of further agreeing problems of a run; unlearning changes the answer of every second at the middle rate."""
    scope = {"scope_key": scope_key(model, data_set), "data_set": data_set, "model": model, "model_revision": "m1"}
    cots, unlearning = [], []
    for number in numbers:
        names = scope | {"problem_key": f"problem-{data_set}-{number}", "problem_id": f"p{number}"}
        cots.append({**names, "key": f"cot-{scope['scope_key']}-{number}", "agree": True, "status": "ok"})
        for lr in (LOW, MIDDLE, HIGH):
            base = names | {"method": "ff2", "lr": lr, "cell_key": cell_key(model, data_set, lr), "attempt": 1}
            for task in _task(base, number, 0):
                flipped = number % 2 == 0 if lr == MIDDLE else lr == HIGH and number % 3 != 0
                unlearning.append({**task, "flipped": flipped, "predicted_letter": "B" if flipped else "A"})
    return {"cots": cots, "unlearning": unlearning}
