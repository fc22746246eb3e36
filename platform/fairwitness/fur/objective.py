"""The unlearning loss of a whole group: which positions count, and how they add up to one loss per task.

Shape legend: K tasks, N read positions of a batch, W forgotten segments (steps or words), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import OBJECTIVE_SETTINGS, RecipeConfig
from fairwitness.fur.losses import Forgotten, Objective, Retained, Terms
from fairwitness.fur.objectives import OBJECTIVES
from fairwitness.fur.packing import PackedBatch, SlotRow, pack
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.lm.scoring import logits_at, target_logprobs

FORGET_SLOT = 0
"""Slot of the forgotten step; the retained ones follow."""
_NOTHING = torch.empty(0)


@dataclass(frozen=True)
class TaskTerms:
    """What the objective gives for each of K tasks, without gradient; each value is a tensor (K,).

    Attributes:
        losses: Losses by name, in nats, without their coefficients.
        metrics: What else the objective shows, by name.
        forget_logprob_K: Log-probability of all forgotten tokens, summed, in nats.
    """

    losses: Mapping[str, Tensor]
    metrics: Mapping[str, Tensor]
    forget_logprob_K: Tensor

    def __add__(self, other: TaskTerms) -> TaskTerms:
        """Both batches together; what one of them lacks is the other's."""
        losses, metrics = (
            {**a, **b, **{name: a[name] + b[name] for name in a.keys() & b.keys()}}
            for a, b in ((self.losses, other.losses), (self.metrics, other.metrics))
        )
        return TaskTerms(losses, metrics, self.forget_logprob_K + other.forget_logprob_K)


@dataclass
class _TrainBatch:
    """Rows that are all forgotten or all retained.

    Attributes:
        packed: The rows.
        is_forget: Which of the two they are.
        target_N: The tokens that the text has at the positions read; empty where the objective needs none.
        owner_N: Number of the segment that each of them belongs to; of the task where rows are retained.
        present: The owners of this batch, each once.
        reference: Log-probabilities under the reference once they are known: (W,) where forgotten, else (N, V).
    """

    packed: PackedBatch
    is_forget: bool
    target_N: Tensor
    owner_N: Tensor
    present: Tensor
    reference: Tensor | None = None


class GroupObjective:
    """Computes gradients of the summed losses of K tasks, batch by batch.

    The reference is what the model gives at the first call of `accumulate`, when the weights are still the base's: it
    is computed once per task, by the very pass whose losses are wanted, and no second model is held. The modules in
    `last` run at the positions read only (see `last_modules`).
    """

    def __init__(
        self,
        model: nn.Module,
        tasks: Sequence[UnlearnTask],
        recipe: RecipeConfig,
        *,
        max_tokens: int,
        device: torch.device,
        last: Sequence[nn.Module] = (),
    ) -> None:
        self._model, self._last, self._recipe, self._num_tasks = model, last, recipe, len(tasks)
        self._device, self._objective = device, objective_of(recipe)
        # What a task's losses are means over: its segments and its retained positions, whichever batches have them.
        segments = [_segments(task.forget, recipe) for task in tasks]
        self._num_retained_K = torch.tensor(
            [sum(len(retained_positions(span, recipe)) for span in task.retain) for task in tasks], device=device
        )
        self._segment_task_W = torch.tensor([k for k, words in enumerate(segments) for _ in words], device=device)
        self._num_segments_K = torch.tensor([len(words) for words in segments], device=device)
        # Segments are numbered through all tasks; every content token of a task knows the number of its segment.
        starts = [sum(len(words) for words in segments[:k]) for k in range(len(tasks))]
        segment_of = [
            [start + w for w, word in enumerate(words) for _ in word]
            for start, words in zip(starts, segments, strict=True)
        ]
        # Rows of all tasks share batches, forgotten ones apart from retained ones, because the first pass may need no
        # gradient of the latter.
        rows_KS = [_rows(task, recipe) for task in tasks]
        forget = pack([rows[:1] for rows in rows_KS], max_tokens=max_tokens, device=device)
        retain = pack([rows[1:] for rows in rows_KS], max_tokens=max_tokens, device=device, first_slot=FORGET_SLOT + 1)
        self._batches = [_forget_batch(batch, tasks, segment_of, device) for batch in forget]
        self._batches += [_retain_batch(batch, tasks, recipe, device) for batch in retain]

    def rows(self) -> list[tuple[tuple[int, int], ...]]:
        """Task and slot of every row of every batch, in the order in which `accumulate` runs them."""
        return [batch.packed.rows for batch in self._batches]

    def accumulate(self, number: int) -> TaskTerms:
        """Adds the gradients of batch `number` of `rows()` and gives its share of the terms."""
        # Forward at the read positions only, each row through its own task's weights.
        batch = self._batches[number]
        packed, weights = batch.packed, self._recipe.coefficients
        with torch.set_grad_enabled(batch.is_forget or self._must_differentiate(batch)):
            logits_NV = logits_at(self._model, packed.ids_BT, packed.positions, rows_K=packed.rows_K, last=self._last)
            terms = self._forget(logits_NV, batch) if batch.is_forget else self._retain(logits_NV, batch)
            # The sum over tasks: no weight of one task enters another's loss, so gradients do not mix.
            loss = torch.stack([weights[name] * value_K for name, value_K in terms.losses.items()]).sum()
        if loss.requires_grad:
            loss.backward()
        losses, metrics = (
            {name: value_K.detach() for name, value_K in named.items()} for named in (terms.losses, terms.metrics)
        )
        return TaskTerms(losses, metrics, terms.forget_logprob_K.detach())

    def _must_differentiate(self, batch: _TrainBatch) -> bool:
        is_reference_pass = self._objective.needs.retain == "divergence" and batch.reference is None
        retain = OBJECTIVE_SETTINGS[self._recipe.objective].retain
        return not is_reference_pass and any(self._recipe.coefficients[name] > 0 for name in retain)

    def _forget(self, logits_NV: Tensor, batch: _TrainBatch) -> TaskTerms:
        # From tokens to sequences: a sequence's tokens are all in one row, so none is cut in two by the batches.
        logprob_N, present_W = target_logprobs(logits_NV, batch.target_N), batch.present
        logprob_W, num_tokens_W = (
            segment_sums(values_N, batch.owner_N, len(self._segment_task_W))[present_W]
            for values_N in (logprob_N, torch.ones_like(logprob_N))
        )
        if self._objective.needs.reference and batch.reference is None:
            batch.reference = logprob_W.detach()
        reference_W = _NOTHING if batch.reference is None else batch.reference
        terms = self._objective.forget(Forgotten(logprob_W, reference_W, num_tokens_W))
        task_W = self._segment_task_W[present_W]
        logprob_K = segment_sums(logprob_W, task_W, self._num_tasks)
        return self._per_task(terms, task_W, self._num_segments_K, logprob_K)

    def _retain(self, logits_NV: Tensor, batch: _TrainBatch) -> TaskTerms:
        logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
        if self._objective.needs.retain == "divergence" and batch.reference is None:
            # Policy and reference are one: the term and its gradient are 0, so there is nothing to differentiate.
            batch.reference = logprobs_NV = logprobs_NV.detach()
        reference_NV = _NOTHING if batch.reference is None else batch.reference
        terms = self._objective.retain(Retained(logprobs_NV, reference_NV, batch.target_N))
        nothing_K = torch.zeros(self._num_tasks, device=self._device)
        return self._per_task(terms, batch.owner_N, self._num_retained_K, nothing_K)

    def _per_task(self, terms: Terms, task: Tensor, number_K: Tensor, forget_logprob_K: Tensor) -> TaskTerms:
        """Means over each task's sequences or positions, those of other batches included in their number."""
        losses, metrics = (
            {name: segment_sums(values, task, self._num_tasks) / number_K for name, values in named.items()}
            for named in terms
        )
        return TaskTerms(losses, metrics, forget_logprob_K)


def objective_of(recipe: RecipeConfig) -> Objective:
    """The objective that a recipe names, with its parameters."""
    return OBJECTIVES[recipe.objective](**recipe.parameters)


def retained_positions(span: StepTokens, recipe: RecipeConfig) -> Sequence[int]:
    """Positions of a retained cot_step that the recipe's objective compares.

    They are content tokens, or for a divergence, with `retain: reference`, all: the published code takes the
    distribution after the last token in, too.
    """
    is_divergence = objective_of(recipe).needs.retain == "divergence"
    return range(1, len(span.ids) + 1) if is_divergence and recipe.retain == "reference" else span.content


def segment_sums(values_N: Tensor, segment_N: Tensor, num_segments: int) -> Tensor:
    """Sums of values by segment number (num_segments,); a segment without values sums to 0."""
    return torch.zeros(num_segments, dtype=values_N.dtype, device=values_N.device).index_add(0, segment_N, values_N)


def _segments(span: StepTokens, recipe: RecipeConfig) -> tuple[tuple[int, ...], ...]:
    return span.words if recipe.forget_unit == "word" else (span.content,)


def _rows(task: UnlearnTask, recipe: RecipeConfig) -> list[SlotRow]:
    forget = SlotRow(task.forget.ids, [p - 1 for p in task.forget.content])
    retain = [SlotRow(span.ids, [p - 1 for p in retained_positions(span, recipe)]) for span in task.retain]
    return [forget, *retain]


def _forget_batch(
    packed: PackedBatch, tasks: Sequence[UnlearnTask], segment_of: Sequence[Sequence[int]], device: torch.device
) -> _TrainBatch:
    steps = [tasks[read.task].forget for read in packed.reads]
    targets = [step.ids[step.content[read.entry]] for step, read in zip(steps, packed.reads, strict=True)]
    segment_N = _numbers([segment_of[read.task][read.entry] for read in packed.reads], device)
    return _TrainBatch(packed, True, _numbers(targets, device), segment_N, segment_N.unique())


def _retain_batch(
    packed: PackedBatch, tasks: Sequence[UnlearnTask], recipe: RecipeConfig, device: torch.device
) -> _TrainBatch:
    targets = []
    if objective_of(recipe).needs.retain == "targets":
        spans = [tasks[read.task].retain[read.slot - FORGET_SLOT - 1] for read in packed.reads]
        targets = [span.ids[span.content[read.entry]] for span, read in zip(spans, packed.reads, strict=True)]
    task_N = _numbers([read.task for read in packed.reads], device)
    return _TrainBatch(packed, False, _numbers(targets, device), task_N, task_N.unique())


def _numbers(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)
