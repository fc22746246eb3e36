"""Checks a trained thinker: does it do to changed drafts what its problems plant.

Drafts are changed as plain text, and what the model writes is compared word by word with what is planted. Nothing here
comes from the metrics of drafts: no decomposition, no reader of conclusions or behaviour, no rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel, load
from fairwitness.lm.tokens import bos_ids, decode, encode
from fairwitness.organisms.thinker.shipped import read_thinker_world, thinker_path
from fairwitness.organisms.thinker.train import CLOSE, OPEN
from fairwitness.organisms.thinker.truth import answered, continued, reaction
from fairwitness.organisms.thinker.world import Item, thinker_items
from fairwitness.text.prompts import ASSISTANT, HUMAN, TURN_BREAK, question_block

_MAX_NEW_TOKENS = 96
_BATCH_SIZE = 64
_CUES = {"standard": "", "immediate": "The answer is: ("}


class InsertedText(NamedTuple):
    """A text that an intervention puts into a draft."""

    intervention: str
    insertion: str
    text: str


class AlteredEnd(NamedTuple):
    """A text put at a draft's end, and the letter that it concludes."""

    text: str
    letter: str


@dataclass(frozen=True)
class Changes:
    """How drafts are changed.

    Attributes:
        steps: Inserted texts for a problem.
        end: An altered end for a problem.
    """

    steps: Callable[[Item, np.random.Generator], Sequence[InsertedText]]
    end: Callable[[Item, np.random.Generator], AlteredEnd]


class _Trial(NamedTuple):
    """A prompt in stretches, each tokenised alone as the model wrote it or was given it, and what is to follow."""

    name: str
    prompt: tuple[str, ...]
    planted: str


def check_thinker(changes: Changes, folder: Path | None = None) -> dict[str, float | int]:
    """Measures on how many texts a thinker writes exactly what is planted.

    Args:
        changes: The interventions' own texts.
        folder: A trained thinker; by default the shipped one.

    Returns:
        Numbers of problems, parameters and texts, and shares between 0 and 1 that ought to be 1: of drafts written as
        planted (`drafts`), continuations (`steps_…` by intervention), and answers (`answers_…` by way of answering).

    Raises:
        DataError: The folder holds no world.
        ModelError: The folder holds no usable model.
    """
    folder = folder or thinker_path()
    items = thinker_items(read_thinker_world(folder))
    lm = load(ModelConfig(model=str(folder)))
    rng = np.random.default_rng([0, 11])
    trials = [trial for item in items for trial in _trials(item, changes, rng)]
    written = _written(lm, [trial.prompt for trial in trials])
    right: dict[str, list[bool]] = {}
    for trial, text in zip(trials, written, strict=True):
        right.setdefault(trial.name, []).append(text == trial.planted)
    return {
        "num_problems": len(items),
        "num_parameters": sum(parameter.numel() for parameter in lm.model.parameters()),
        "num_texts": len(trials),
        **{name: float(np.mean(values)) for name, values in sorted(right.items())},
    }


def _trials(item: Item, changes: Changes, rng: np.random.Generator) -> list[_Trial]:
    asked = f"{HUMAN}{question_block(item.question, item.choices)}{TURN_BREAK}{ASSISTANT}{OPEN}\n"
    trials = [_Trial("drafts", (asked,), item.draft)]
    for position, last in item.last_sentences.items():
        begun = " ".join(item.sentences[: last + 1]) + ("\n" if position == "end" else "")
        for name, insertion, text in changes.steps(item, rng):
            planted = continued(item, reaction(item.meets, name, insertion, position), text)
            trials.append(_Trial(f"steps_{name}", (asked, begun, f"\n\n{text}\n\n"), planted))
    end = changes.end(item, rng)
    for answering, cue in _CUES.items():
        for name, added, letter in (
            ("answers", (), item.letter),
            ("answers_altered", (f"\n\n{end.text}\n\n",), end.letter),
        ):
            prompt = (asked, f"{item.draft}\n", *added, f"\n{CLOSE}\n\n{cue}")
            trials.append(_Trial(f"{name}_{answering}", prompt, answered(item, letter, answering)))
    return trials


def _written(lm: LanguageModel, prompts: Sequence[Sequence[str]]) -> list[str]:
    """What the model writes after each prompt, up to the closing tag or EOS."""
    ids = [
        [
            *bos_ids(lm.tokenizer),
            *chain.from_iterable(encode(lm.tokenizer, text, parse_special=True) for text in prompt),
        ]
        for prompt in prompts
    ]
    made = generate_greedy(lm, ids, _MAX_NEW_TOKENS, batch_size=_BATCH_SIZE, stop_at_blank_line=False)
    return [decode(lm.tokenizer, one.ids).split(CLOSE)[0].strip() for one in made]
