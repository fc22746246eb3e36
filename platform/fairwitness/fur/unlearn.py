"""Unlearns the tasks of one group at once and measures after every iteration."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from fairwitness.chains.config import CotConfig
from fairwitness.chains.items import HeldOut, Ids, Question
from fairwitness.fur.config import FullFF2Config, LoraConfig, RecipeConfig
from fairwitness.fur.objective import GroupObjective, TaskTerms
from fairwitness.fur.packing import PackedBatch, SlotRow, pack
from fairwitness.fur.tasks import CotAfter, IterationResult, TaskResult, UnlearnTask
from fairwitness.lm.config import EngineConfig
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.last_layer import last_modules
from fairwitness.lm.memory import within_memory
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import LetterAnswer, letter_answers, logits_at, target_logprobs

QUESTIONS_AT_ONCE = 256
"""Questions of similar length that are laid out together; bounds the memory of the ids, whatever the set's size."""


@torch.no_grad()
def variant_answers(
    lm: LanguageModel, questions: Sequence[Question], num_variants: int, *, max_tokens: int
) -> list[Ids]:
    """The choice (0 for A) of each variant on each question; a tuple per variant, in the order of the questions.

    Args:
        lm: The model, with the variants entered.
        questions: What is asked; none gives empty tuples.
        num_variants: Number of variants.
        max_tokens: Padded tokens of a pass.
    """
    last = last_modules(lm.model, lm.ff2_names)
    found = [[-1] * len(questions) for _ in range(num_variants)]
    order = sorted(range(len(questions)), key=lambda i: (len(questions[i].ids), i))
    for start in range(0, len(order), QUESTIONS_AT_ONCE):
        part = order[start : start + QUESTIONS_AT_ONCE]
        rows = [SlotRow(questions[i].ids, [len(questions[i].ids) - 1]) for i in part]
        for batch in pack([rows] * num_variants, max_tokens=max_tokens, device=lm.device):
            logits_NV = logits_at(lm.model, batch.ids_BT, batch.positions, rows_K=batch.rows_K, last=last)
            answers = letter_answers(logits_NV, [questions[part[read.slot]].letter_ids for read in batch.reads])
            for read, answer in zip(batch.reads, answers, strict=True):
                found[read.task][part[read.slot]] = answer.index
    return [tuple(choices) for choices in found]


log = logging.getLogger(__name__)

STEP_SLOT, QUESTION_SLOT, FIRST_HELD_OUT_SLOT = 0, 1, 2


def unlearn_group(lm: LanguageModel, group: UnlearnGroup, engine: EngineConfig) -> list[TaskResult]:
    """Unlearns every task of the group from the base weights; one result per task, in order.

    The base weights are never written: the trained copies are separate, and the model's own modules are back in their
    place when this returns or raises. A task whose loss or measurements are not finite ends with an error; the others
    of its group are not touched by it.

    Source: FUR §4.1 to §4.3, App. E.
    """
    start = time.perf_counter()
    tasks = group.tasks
    # While this block runs, every FF2 of the model is K copies, one for each task's rows.
    with _variants(lm, group) as variants:
        histories = _iterate(lm, group, variants, engine)
        # The variants are as the last iteration left them: a new CoT, then questions about general capability.
        after = _cots_after(lm, group, engine) if group.cot_after else [None] * len(tasks)
        asked = time.perf_counter()
        general = variant_answers(lm, group.capability, len(tasks), max_tokens=engine.max_tokens)
    # The base weights are back. A task that went wrong says why; its neighbours stand.
    asked_s = (time.perf_counter() - asked) / len(tasks)
    seconds = (time.perf_counter() - start) / len(tasks)
    results = []
    for task, history, cot, choices in zip(tasks, histories, after, general, strict=True):
        error = _not_finite(history)
        if error:
            results.append(TaskResult(task.task_key, (), error, None, len(tasks), seconds))
        else:
            results.append(TaskResult(task.task_key, tuple(history), None, cot, len(tasks), seconds, choices, asked_s))
    return results


def _variants(lm: LanguageModel, group: UnlearnGroup) -> GroupedFF2:
    method = group.recipe.method
    if isinstance(method, FullFF2Config):
        dtype = torch.bfloat16 if method.precision == "bf16_pure" else torch.float32
        return GroupedFF2.full(lm.model, lm.ff2_names, len(group.tasks), dtype)
    seeds = [task.seed for task in group.tasks]
    return GroupedFF2.lora(lm.model, lm.ff2_names, seeds, rank=method.rank, alpha=method.alpha, dropout=method.dropout)


def _iterate(
    lm: LanguageModel, group: UnlearnGroup, variants: GroupedFF2, engine: EngineConfig
) -> list[list[IterationResult]]:
    recipe = group.recipe
    parameters = variants.parameters()
    # One optimiser for all tasks: it works element by element, so K copies in one tensor are K optimisers.
    optimizer = torch.optim.AdamW(
        parameters,
        lr=group.lr,
        weight_decay=recipe.weight_decay,
        # One pass over memory; in bfloat16 it would round less often than the published code does.
        fused=all(parameter.dtype == torch.float32 for parameter in parameters),
    )
    objective = GroupObjective(
        lm.model, group.tasks, recipe, max_tokens=engine.max_tokens, device=lm.device, last=_last(lm, recipe)
    )
    evaluation = GroupEvaluation(lm, group.tasks, group.held_out, max_tokens=engine.max_tokens)
    histories: list[list[IterationResult]] = [[] for _ in group.tasks]
    # Update, then measure: answer, step probability and held-out answers of every task after every iteration.
    for iteration in range(recipe.num_iterations):
        for settings in optimizer.param_groups:
            settings["lr"] = group.lr * _rate_factor(recipe, iteration)
        terms = _gradients(objective, variants, group.tasks, iteration)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        for history, measured in zip(histories, evaluation.measure(iteration + 1, terms), strict=True):
            history.append(measured)
    return histories


def _last(lm: LanguageModel, recipe: RecipeConfig) -> tuple[nn.Module, ...]:
    # The numbers of dropout belong to whole rows.
    has_dropout = isinstance(recipe.method, LoraConfig) and recipe.method.dropout > 0
    return last_modules(lm.model, lm.ff2_names, with_mlp=not has_dropout)


def _rate_factor(recipe: RecipeConfig, iteration: int) -> float:
    # Linear: 1 at first, 1/n at the last of n updates.
    return 1.0 - iteration / recipe.num_iterations if recipe.schedule == "linear" else 1.0


def _gradients(
    objective: GroupObjective, variants: GroupedFF2, tasks: Sequence[UnlearnTask], iteration: int
) -> TaskTerms:
    total: TaskTerms | None = None
    for number, rows in enumerate(objective.rows()):
        variants.set_dropout([_dropout_seed(tasks[task].seed, iteration, slot) for task, slot in rows])
        part = objective.accumulate(number)
        total = part if total is None else total + part
    variants.set_dropout(None)
    assert total is not None
    return total


def _dropout_seed(seed: int, iteration: int, slot: int) -> int:
    return (seed * 1_009 + iteration) * 1_013 + slot


class GroupEvaluation:
    """Measures all tasks of a group in packed passes that read logits at the needed positions only."""

    def __init__(
        self, lm: LanguageModel, tasks: Sequence[UnlearnTask], held_out: Sequence[HeldOut], *, max_tokens: int
    ) -> None:
        self._lm, self._tasks, self._held_out = lm, tasks, held_out
        self._last = last_modules(lm.model, lm.ff2_names)
        rows_KS = [
            [
                SlotRow(task.forget.ids, [p - 1 for p in task.forget.positions]),
                SlotRow(task.question.ids, [len(task.question.ids) - 1]),
                *[SlotRow(h.question.ids, [len(h.question.ids) - 1]) for h in held_out],
            ]
            for task in tasks
        ]
        self._batches = pack(rows_KS, max_tokens=max_tokens, device=lm.device)

    @torch.no_grad()
    def measure(self, iteration: int, terms: TaskTerms) -> list[IterationResult]:
        """One record per task for the weights as they are now."""
        logprobs: list[float] = [math.nan] * len(self._tasks)
        answers: dict[tuple[int, int], LetterAnswer] = {}
        for batch in self._batches:
            logits_NV = logits_at(self._lm.model, batch.ids_BT, batch.positions, rows_K=batch.rows_K, last=self._last)
            self._read_steps(logits_NV, batch, logprobs)
            self._read_answers(logits_NV, batch, answers)
        losses, metrics = (
            {name: values_K.tolist() for name, values_K in named.items()} for named in (terms.losses, terms.metrics)
        )
        held = range(FIRST_HELD_OUT_SLOT, FIRST_HELD_OUT_SLOT + len(self._held_out))
        records = []
        for k in range(len(self._tasks)):
            own = answers[k, QUESTION_SLOT]
            others = tuple(answers[k, s].index for s in held)
            shown = ({name: values[k] for name, values in named.items()} for named in (losses, metrics))
            records.append(IterationResult(iteration, own.probs, own.mass, own.index, logprobs[k], others, *shown))
        return records

    def _read_steps(self, logits_NV: Tensor, batch: PackedBatch, logprobs: list[float]) -> None:
        numbers = [n for n, read in enumerate(batch.reads) if read.slot == STEP_SLOT]
        if not numbers:
            return
        reads = [batch.reads[n] for n in numbers]
        targets = [self._tasks[r.task].forget.ids[self._tasks[r.task].forget.positions[r.entry]] for r in reads]
        values_N = target_logprobs(logits_NV[numbers], torch.tensor(targets, device=logits_NV.device)).cpu()
        owner_N = torch.tensor([r.task for r in reads])
        for k in owner_N.unique().tolist():
            logprobs[k] = float(values_N[owner_N == k].mean())

    def _read_answers(
        self, logits_NV: Tensor, batch: PackedBatch, answers: dict[tuple[int, int], LetterAnswer]
    ) -> None:
        numbers = [n for n, read in enumerate(batch.reads) if read.slot != STEP_SLOT]
        if not numbers:
            return
        reads = [batch.reads[n] for n in numbers]
        found = letter_answers(logits_NV[numbers], [self._letter_ids(r.task, r.slot) for r in reads])
        answers.update({(read.task, read.slot): answer for read, answer in zip(reads, found, strict=True)})

    def _letter_ids(self, task: int, slot: int) -> tuple[int, ...]:
        if slot == QUESTION_SLOT:
            return self._tasks[task].question.letter_ids
        return self._held_out[slot - FIRST_HELD_OUT_SLOT].question.letter_ids


def _cots_after(lm: LanguageModel, group: UnlearnGroup, engine: EngineConfig) -> list[CotAfter | None]:
    assert group.cot_after is not None
    prompts = [list(task.cot_prompt) for task in group.tasks]
    generated = generate_greedy(
        lm, prompts, group.cot_after.max_new_tokens, batch_size=len(prompts), preserve_order=True
    )
    rows = [[*task.cot_prompt, *g.ids, *task.cot_answer_suffix] for task, g in zip(group.tasks, generated, strict=True)]
    fits = [g.error is None and len(ids) <= lm.facts.context_length for g, ids in zip(generated, rows, strict=True)]
    rows_KS = [[SlotRow(ids, [len(ids) - 1])] if fit else [] for ids, fit in zip(rows, fits, strict=True)]
    found: dict[int, LetterAnswer] = {}
    for batch in pack(rows_KS, max_tokens=engine.max_tokens, device=lm.device):
        with torch.no_grad():
            logits_NV = logits_at(lm.model, batch.ids_BT, batch.positions, rows_K=batch.rows_K)
        numbers = [read.task for read in batch.reads]
        answers = letter_answers(logits_NV, [group.tasks[k].question.letter_ids for k in numbers])
        found.update(zip(numbers, answers, strict=True))
    texts = [str(lm.tokenizer.decode(generation.ids)) for generation in generated]
    return [
        CotAfter(tuple(g.ids), text, found[k].index) if k in found else None
        for k, (g, text) in enumerate(zip(generated, texts, strict=True))
    ]


def _not_finite(history: Sequence[IterationResult]) -> str | None:
    for record in history:
        values = (*record.losses.values(), record.cot_step_logprob, record.letter_mass, *record.probs)
        if not all(map(math.isfinite, values)):
            return f"non-finite loss or measurement at iteration {record.iteration}; lower the learning rate"
    return None


@dataclass(frozen=True)
class UnlearnGroup:
    """Tasks that are unlearned at once, at one rate.

    `capability` are questions that each variant is asked after the last iteration.
    """

    tasks: tuple[UnlearnTask, ...]
    recipe: RecipeConfig
    lr: float
    held_out: tuple[HeldOut, ...]
    cot_after: CotConfig | None
    capability: tuple[Question, ...] = ()

    def answer(self, engine: ModelEngine) -> list[TaskResult]:
        """Unlearns the group; where memory runs out, in halves. A single task that does not fit ends with an error.

        There is no second model: the reference is the model before its first update.
        """
        results = within_memory(partial(unlearn_group, engine.lm, self, engine.config))
        if results is not None:
            return results
        size = len(self.tasks)
        if size == 1:
            message = "out of memory with one task; lower engine.max_tokens or take a smaller model"
            return [TaskResult(self.tasks[0].task_key, (), message, None, 1, 0.0)]
        half = (size + 1) // 2
        log.warning("out of memory with %d tasks at once; going on with %d", size, half)
        halves = (replace(self, tasks=tasks) for tasks in (self.tasks[:half], self.tasks[half:]))
        return [result for part in halves for result in part.answer(engine)]
