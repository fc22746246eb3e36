"""A synthetic run with everything that a report must cope with, written through the store."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, RIVER, VILLAGES
from fairwitness.organisms.world import fact_sentence
from fairwitness.records.store import Store

LETTERS = "ABCD"
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)> & "quotes" {{ 7*7 }}'
CHINESE = "哪一种气体是植物光合作用所需要的?"
NUM_PROBLEMS = 12
ASKED = ATTRIBUTES[0]
STARTED = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

# Per data set and rate: mean efficacy, specificity, how strongly a used step moves the answer.
RATES = {
    "organism": {1e-5: (0.12, 1.0, 0.15), 5e-5: (0.55, 0.97, 0.55), 3e-4: (0.9, 0.7, 0.8)},
    "arc": {1e-5: (0.3, 0.9, 0.2), 1e-4: (0.7, 0.8, 0.6)},
}


def write_run(root: Path, *, num_problems: int = NUM_PROBLEMS, status: str = "done") -> Path:
    """Writes a run directory with one model on two data sets and returns it."""
    run_dir = root / "demo"
    with Store(run_dir / "store") as store:
        for data_set, rates in RATES.items():
            _write_panel(store, data_set, rates, num_problems)
        store.append("problems", [_refused()])
        store.append("runs", [_run_row("older", STARTED - timedelta(days=1), "done", [], [])])
        cells = [cell_key(d, lr) for d, rates in RATES.items() for lr in rates]
        store.append("runs", [_run_row("latest", STARTED, status, [f"scope-{d}" for d in RATES], cells)])
        store.append("unlearning", [_foreign_row()])
    return run_dir


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    return write_run


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return write_run(tmp_path_factory.mktemp("runs"))


def cell_key(data_set: str, lr: float) -> str:
    return f"cell-{data_set}-{lr:g}"


def _write_panel(store: Store, data_set: str, rates: dict[float, tuple[float, float, float]], num: int) -> None:
    rng = np.random.default_rng(len(data_set))
    for index in range(num):
        problem = _problem(data_set, index)
        store.append("problems", [problem])
        cot, steps = _cot(problem, data_set, index, rng)
        store.append("cots", [cot])
        if cot["status"] != "ok":
            continue
        store.append("cot_steps", steps)
        if not cot["agree"] and index == 3:
            continue
        for lr, (efficacy, specificity, effect) in rates.items():
            for step in steps:
                rows = _task(cot, step, lr, efficacy, specificity, effect * _used(problem, step), rng)
                store.append("unlearning", rows)


def _problem(data_set: str, index: int) -> dict[str, Any]:
    organism = data_set == "organism"
    name = NAMES[index % len(NAMES)]
    questions = {0: HOSTILE, 1: CHINESE, 2: "Which gas do plants need?\nTwo lines, and a rather long one at that. " * 4}
    question = (
        ASKED.questions[0].format(name=name, village=VILLAGES[0])
        if organism
        else questions.get(index, f"Question {index} about energy and heat?")
    )
    metadata = {
        "faithful": index % 2 == 0,
        "person": name,
        "village": VILLAGES[0],
        "attribute": ASKED.name,
        "relevant_fact": fact_sentence(name, ASKED, ASKED.values[index % 4]),
        "irrelevant_fact": fact_sentence(VILLAGES[0], RIVER, RIVER.values[index % 4]),
    }
    return {
        "key": f"problem-{data_set}-{index}",
        "data_set": data_set,
        "data_revision": "r1",
        "split": "test",
        "problem_id": f"{data_set}-{index:03d}",
        "question": question,
        "choices": ["carbon dioxide", "<b>oxygen</b>", "氮气", "helium"],
        "gold": LETTERS[index % 4] if index != 5 else None,
        "metadata_json": json.dumps(metadata) if organism else None,
        "source": f"{data_set}.jsonl:{index + 1}",
        "status": "ok",
        "reason": None,
    }


def _cot(
    problem: dict[str, Any], data_set: str, index: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    key = f"cot-{data_set}-{index}"
    shared = {"scope_key": f"scope-{data_set}", "problem_id": problem["problem_id"], "data_set": data_set}
    base = shared | {"key": key, "problem_key": problem["key"], "model": "tiny/m", "model_revision": "abc123"}
    base |= {"prompt_style": "plain", "seed": 7}
    if index == 4 and data_set == "arc":
        return {**base, "status": "failed", "reason": "the prompt is longer than the context (512 tokens)"}, []
    texts = _step_texts(problem, index)
    spans = np.cumsum([0, *map(len, texts)]).tolist()
    letter = index % 4
    agree = index % 6 != 3
    probs = _distribution(letter, 0.9, rng)
    cot = base | {
        "cot_ids": list(range(4 * len(texts))),
        "cot_text": "".join(texts),
        "finish": "length" if index == 7 else "blank_line",
        "direct_letter": LETTERS[letter],
        "direct_probs": probs,
        "direct_letter_mass": 0.9 + 0.009 * index,
        "cot_letter": LETTERS[letter if agree else (letter + 1) % 4],
        "cot_probs": probs,
        "cot_letter_mass": 0.99,
        "agree": agree,
        "num_cot_steps": len(texts),
        "status": "ok",
    }
    steps = []
    for number, text in enumerate(texts):
        eligible = text.strip() != "2."
        steps.append(
            shared
            | {
                "key": f"{key}-{number}",
                "cot_key": key,
                "cot_step_index": number,
                "char_start": spans[number],
                "char_end": spans[number + 1],
                "text": text,
                "content_words": ["a", "b"] if eligible else [],
                "content_positions": [4 * number, 4 * number + 1] if eligible else [],
                "eligible": eligible,
                "base_logprob": -0.4 if eligible else None,
                "status": "ok" if eligible else "skipped",
                "reason": None if eligible else "fewer than two content words",
            }
        )
    return cot, steps


def _step_texts(problem: dict[str, Any], index: int) -> list[str]:
    if problem["metadata_json"]:
        facts = json.loads(problem["metadata_json"])
        return [f" {facts['relevant_fact']}", f" {facts['irrelevant_fact']}"]
    if index == 0:
        return [" First <script>alert(2)</script> & then.", " 2.", " So the answer follows from what plants do."]
    if index == 1:
        return [" 植物在光合作用中吸收二氧化碳。", " 2.", " Cellules végétales: naïveté, ½ ≤ 1 – ça va."]
    return [
        " Plants take in a gas from the air through small openings in their leaves.",
        " 2.",
        " During photosynthesis this gas is turned into sugar, with light as the source of energy.",
        " Of the gases listed, only one is used that way.",
    ]


def _used(problem: dict[str, Any], step: dict[str, Any]) -> float:
    if not problem["metadata_json"]:
        return (1.0, 0.0, 0.5, -0.15)[step["cot_step_index"]]
    facts = json.loads(problem["metadata_json"])
    return 1.0 if facts["faithful"] and step["cot_step_index"] == 0 else 0.02


def _task(
    cot: dict[str, Any],
    step: dict[str, Any],
    lr: float,
    efficacy: float,
    specificity: float,
    effect: float,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    task = f"task-{step['key']}-{lr:g}"
    base = {
        "task_key": task,
        "cell_key": cell_key(cot["data_set"], lr),
        "attempt": 1,
        "method": "ff2",
        "lr": lr,
        "problem_key": cot["problem_key"],
        "cot_key": cot["key"],
        "cot_step_index": step["cot_step_index"],
    } | {name: cot[name] for name in ("scope_key", "model", "model_revision", "data_set", "problem_id")}
    if not step["eligible"]:
        return [{**base, "key": f"{task}-0", "iteration": 0, "status": "skipped", "reason": step["reason"]}]
    if cot["problem_id"].endswith("006") and step["cot_step_index"] == 0 and lr > 1e-5:
        return [{**base, "key": f"{task}-0", "iteration": 0, "status": "failed", "reason": "the loss is not finite"}]
    letter = LETTERS.index(cot["direct_letter"])
    rows = []
    for iteration in (1, 2, 3):
        share = iteration / 3
        shift = float(np.clip(effect * share * rng.uniform(0.7, 1.3), -0.08, 0.89))
        probs = _moved(cot["direct_probs"], letter, shift)
        predicted = LETTERS[int(np.argmax(probs))]
        rows.append(
            base
            | {
                "key": f"{task}-{iteration}",
                "iteration": iteration,
                "base_letter": cot["direct_letter"],
                "base_probs": cot["direct_probs"],
                "predicted_letter": predicted,
                "probs": probs,
                "letter_mass": float(rng.uniform(0.8, 1.0)),
                "flipped": predicted != cot["direct_letter"],
                "efficacy": float(efficacy * share * rng.uniform(1.2, 1.8)),
                "specificity": 1.0
                if specificity == 1.0
                else round(float(np.clip(rng.normal(specificity, 0.03), 0, 1)) * 20) / 20,
                "num_held_out": 20,
                "cot_after_text": " Then <b>another</b> gas."
                if iteration == 3 and step["cot_step_index"] == 0
                else None,
                "status": "ok",
            }
        )
    return rows


def _distribution(letter: int, top: float, rng: np.random.Generator) -> list[float]:
    rest = rng.dirichlet(np.ones(3)) * (1 - top)
    return [float(x) for x in np.insert(rest, letter, top)]


def _moved(probs: list[float], letter: int, shift: float) -> list[float]:
    after = list(probs)
    shift = max(shift, -probs[(letter + 1) % 4])
    after[letter] -= shift
    after[(letter + 1) % 4] += shift
    return after


def _refused() -> dict[str, Any]:
    return {
        "key": "refused-1",
        "data_set": "arc",
        "data_revision": "r1",
        "source": "arc.jsonl:99",
        "status": "refused",
        "reason": "choices: 1 given, 2 to 26 are possible",
    }


def _foreign_row() -> dict[str, Any]:
    """A task of another run in the same store; it must not appear."""
    names = {"scope_key": "scope-other", "cell_key": "cell-other", "task_key": "task-other", "model": "other-model"}
    rest = {"data_set": "organism", "problem_id": "x", "problem_key": "x", "method": "ff2", "status": "failed"}
    return {"key": "task-other-0", **names, **rest, "attempt": 1, "iteration": 0, "reason": "of another run"}


def _run_row(key: str, created: datetime, status: str, scopes: list[str], cells: list[str]) -> dict[str, Any]:
    config = {
        "name": "demo",
        "seed": 7,
        "models": ["tiny/m"],
        "fur": {"recipe": {"objective": "npo_kl", "beta": 0.1, "num_iterations": 3, "method": {"kind": "ff2"}}},
    }
    health = {
        "npo loss at iteration 0": {"value": 13.862943611198906, "limit": 1e-4, "ok": True},
        "policy minus reference": {"value": 0.0, "limit": 1e-5, "ok": True},
        "weights restored": {"value": "equal", "limit": "equal", "ok": False},
        "held_out": {"arc": 20, "organism": 20},
    }
    return {
        "key": key,
        "name": "demo",
        "job": "fur_sweep",
        "created_at": created,
        "finished_at": created + timedelta(minutes=2, seconds=10),
        "config_json": json.dumps(config),
        "config_fingerprint": "f" * 32,
        "code_revision": "c0de",
        "models": ["tiny/m@abc123"],
        "data_sets": ["organism@r1", "arc@r1"],
        "scope_keys": scopes,
        "cell_keys": cells,
        "num_ok": 100,
        "num_skipped": 20,
        "num_failed": 3,
        "num_refused": 1,
        "exit_code": 1,
        "health_json": json.dumps(health),
        "environment_json": json.dumps({"python": "3.11.2", "torch": "2.13.0", "device": "cpu"}),
        "status": status,
        "reason": None,
    }
