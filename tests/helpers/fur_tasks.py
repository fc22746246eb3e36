"""Random unlearning tasks for tiny models: sequences, steps, words and retained spans of different lengths."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence

from fairwitness.chains.items import HeldOut, Question
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import IterationResult, TaskResult, UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.config import EngineConfig
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import answers

FIRST_ID = 10
"""Ids below are special tokens of the tiny tokenizers."""
MAX_TOKENS = 512


def random_ids(draw: random.Random, vocab_size: int, length: int) -> tuple[int, ...]:
    """Ids of ordinary tokens."""
    return tuple(draw.randrange(FIRST_ID, vocab_size) for _ in range(length))


def random_step(draw: random.Random, vocab_size: int) -> StepTokens:
    """A cot_step of 5 to 14 tokens after 4 to 20 others, with two to four words of one to three tokens."""
    start, length = draw.randint(4, 20), draw.randint(5, 14)
    words, position = [], start
    for _ in range(draw.randint(2, 4)):
        position += draw.randint(0, 1)
        end = min(position + draw.randint(1, 3), start + length)
        if position < end:
            words.append(tuple(range(position, end)))
        position = end
    return StepTokens(random_ids(draw, vocab_size, start + length), start, tuple(words))


def random_question(draw: random.Random, vocab_size: int) -> Question:
    """A prompt of 3 to 16 tokens with two to five letters."""
    letters = tuple(draw.sample(range(FIRST_ID, vocab_size), draw.randint(2, 5)))
    return Question(random_ids(draw, vocab_size, draw.randint(3, 16)), letters)


def make_tasks(lm: LanguageModel, num: int, *, seed: int = 0, num_retain: int = 4) -> tuple[UnlearnTask, ...]:
    """Tasks of this model's vocabulary; the first `num` of a seed are the same for every `num`."""
    draw, vocab_size = random.Random(seed), lm.facts.vocab_size
    tasks = []
    for k in range(num):
        forget = random_step(draw, vocab_size)
        retain = tuple(random_step(draw, vocab_size) for _ in range(num_retain))
        question = random_question(draw, vocab_size)
        cot_prompt, suffix = random_ids(draw, vocab_size, draw.randint(3, 9)), random_ids(draw, vocab_size, 4)
        task_seed = draw.randrange(2**40)
        tasks.append(UnlearnTask(f"task-{k}", forget, retain, question, 0, cot_prompt, suffix, task_seed))
    return tuple(tasks)


def make_held_out(lm: LanguageModel, num: int = 4, *, seed: int = 1) -> tuple[HeldOut, ...]:
    """Held-out questions with the base model's answers."""
    draw = random.Random(seed)
    questions = [random_question(draw, lm.facts.vocab_size) for _ in range(num)]
    found = answers(lm.model, [q.ids for q in questions], [q.letter_ids for q in questions], max_tokens=MAX_TOKENS)
    return tuple(HeldOut(q, answer.index) for q, answer in zip(questions, found, strict=True))


def make_group(
    lm: LanguageModel,
    tasks: Sequence[UnlearnTask],
    recipe: RecipeConfig | None = None,
    *,
    lr: float = 1e-3,
    held_out: Sequence[HeldOut] | None = None,
) -> UnlearnGroup:
    """A group of these tasks with the default recipe, without CoTs after unlearning."""
    held = make_held_out(lm) if held_out is None else held_out
    return UnlearnGroup(tuple(tasks), recipe or RecipeConfig(), lr, tuple(held), None)


def engine_config(max_tokens: int = MAX_TOKENS) -> EngineConfig:
    """Engine settings with this many padded tokens per pass."""
    return EngineConfig(max_tokens=max_tokens)


def floats(measured: IterationResult) -> tuple[float, ...]:
    """Every float of one record but its losses and metrics."""
    return (*measured.probs, measured.letter_mass, measured.cot_step_logprob)


def predictions(result: TaskResult) -> list[tuple[int, tuple[int, ...]]]:
    """Every prediction of one task: its own answer and those on the held-out questions, by iteration."""
    return [(m.index, m.held_out) for m in result.measured]


def relative_differences(found: TaskResult, expected: TaskResult, *, kl_scale: float = 1e-2) -> Iterator[float]:
    """|a - b| / |b| of every float of two results.

    A KL term is exactly 0 at the first iteration and a difference of larger numbers later: its differences are divided
    by at least `kl_scale` nats.
    """
    assert found.error == expected.error
    for a, b in zip(found.measured, expected.measured, strict=True):
        assert a.losses.keys() == b.losses.keys()
        for name, value in b.losses.items():
            yield abs(a.losses[name] - value) / max(kl_scale if name == "kl" else 0.0, abs(value))
        yield from (abs(x - y) / abs(y) for x, y in zip(floats(a), floats(b), strict=True))


def largest_difference(found: Iterable[TaskResult], expected: Iterable[TaskResult]) -> float:
    """The largest relative difference of any float of any task; infinite where one is not a number."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        for value in relative_differences(a, b):
            worst = max(worst, value if math.isfinite(value) else math.inf)
    return worst
