"""Lines as the published implementation writes them, with numbers that can be worked by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SENTENCES = ("1.", "Foxes dig deep dens.", "So the answer is yes.")
COT = "1. Foxes dig deep dens.\nSo the answer is yes."


def measured(probs: list[float], logprob: float, held_out: list[int], cot_letter: int = 0) -> dict[str, Any]:
    """One iteration of a result line."""
    after = [0.0] * len(probs)
    after[cot_letter] = 1.0
    return {
        "completion": "A): yes",
        "probs": probs,
        "prediction": probs.index(max(probs)),
        "target_cot_step": SENTENCES[1],
        "target_cot_step_prefix": "Human: …",
        "specificity_preds": held_out,
        "specificity_probs": [[0.5, 0.5] for _ in held_out],
        "new_cot": f"New reasoning for {'AB'[cot_letter]}.",
        "new_cot_probs": after,
        "cot_prob": [-1.0],
        "cot_step_prob": [logprob],
    }


def result(number: int = 1, cot_step_index: int = 1, **changes: Any) -> dict[str, Any]:
    """A result line of two iterations: the letters' mass is 0.8, and the answer flips at the last iteration."""
    line = {
        "id": f"id{number}",
        "question": f"Do foxes dig, number {number}?",
        "step_idx": cot_step_index,
        "options": ["A): yes", "B): no"],
        "correct": "A",
        "initial_cot": COT,
        "initial_cot_probs": [0.9, 0.1],
        "initial_probs": [0.6, 0.2],
        "prediction": 0,
        "cot_prediction": 0,
        "cot_step": SENTENCES[cot_step_index],
        "segmented_cot": list(SENTENCES),
        "unlearning_results": {
            "0": measured([0.6, 0.2], -1.0, [0, 1, 0, 1]),
            "1": measured([0.5, 0.3], -1.5, [0, 1, 0, 1]),
            "2": measured([0.2, 0.6], -2.0, [0, 1, 1, 1], cot_letter=1),
        },
    }
    return {**line, **changes}


def mistake(number: int = 1, cot_step_index: int = 1, **changes: Any) -> dict[str, Any]:
    """A mistake line."""
    line = {
        "id": f"id{number}",
        "step_idx": cot_step_index,
        "question": f"Do foxes dig, number {number}?",
        "options": ["A): yes", "B): no"],
        "cot_step": SENTENCES[cot_step_index],
        "mistake_cot_step": "Foxes dig no dens.",
        "mistake_model": "writer-1",
        "segmented_cot": list(SENTENCES),
    }
    return {**line, **changes}


def judgement(
    number: int = 1, cot_step_index: int = 1, reply: str = "No  \nThey differ.", **changes: Any
) -> dict[str, Any]:
    """A judgement line."""
    question = f"Do foxes dig, number {number}?"
    prompt = (
        f"Compare.\n\nQuestion: {question}\nAnswer options:\n['A): yes', 'B): no']\n\nReasoning chain 1:\nYes.\n\n"
        "Reasoning chain 2:\nNo.\n\nDo they argue for the same?\n\n"
    )
    line = {
        "prompt": prompt,
        "response": reply,
        "model": "judge-1",
        "instance_id": f"{question}_{cot_step_index}",
    }
    return {**line, **changes}


RESULTS_NAME = "npo_KL_sentencize_s=True_lr=3e-05_rs=1001_pos=True_ff2=True.out"
MISTAKES_NAME = "npo_KL_lr=3e-05_rs=1001_pos=True_ff2=True.out"
JUDGEMENTS_NAME = "LLaMA-3_sports_NPO_KL_3e-05_judgements.jsonl"


def write_lines(path: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """Writes JSON lines; a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def write_results(folder: Path, lines: Iterable[dict[str, Any] | str], *, name: str = RESULTS_NAME) -> Path:
    """A file of results of LLaMA-3 on sports."""
    return write_lines(folder / "results" / "sports" / "LLaMA-3" / name, lines)


def write_mistakes(folder: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """A file of mistakes for the same model and data set."""
    return write_lines(folder / "mistakes" / "sports" / "LLaMA-3" / MISTAKES_NAME, lines)
