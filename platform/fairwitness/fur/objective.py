"""The unlearning loss of a whole group: which positions count, and how they add up to one loss per task.

Shape legend: K tasks, N read positions of a batch, W forgotten segments (steps or words), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.npo import kl_divergence, npo_loss, segment_sums
from fairwitness.fur.packing import PackedBatch, SlotRow, pack
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.lm.scoring import logits_at, target_logprobs

FORGET_SLOT = 0
"""Slot of the forgotten step; the retained ones follow."""


@dataclass(frozen=True)
class TaskLosses:
    """NPO and KL terms of each task (K,), in nats, without their coefficients."""

    npo_K: Tensor
    kl_K: Tensor


@dataclass
class _TrainBatch:
    packed: PackedBatch
    forget_N: Tensor
    target_N: Tensor
    segment_N: Tensor
    present_W: Tensor
    retain_N: Tensor
    retain_task_N: Tensor
    ref_forget_W: Tensor | None = field(default=None)
    ref_retain_NV: Tensor | None = field(default=None)


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
        self._device = device
        segments = [_segments(task.forget, recipe) for task in tasks]
        self._num_retained_K = torch.tensor(
            [sum(len(_retained(span, recipe)) for span in task.retain) for task in tasks], device=device
        )
        self._segment_task_W = torch.tensor([k for k, words in enumerate(segments) for _ in words], device=device)
        self._num_segments_K = torch.tensor([len(words) for words in segments], device=device)
        rows_KS = [_rows(task, recipe) for task in tasks]
        starts = [sum(len(words) for words in segments[:k]) for k in range(len(tasks))]
        segment_of = [
            [start + w for w, word in enumerate(words) for _ in word]
            for start, words in zip(starts, segments, strict=True)
        ]
        # Apart from one another, because the first pass needs no gradient of the retained rows.
        packed = pack([rows[:1] for rows in rows_KS], max_tokens=max_tokens, device=device)
        packed += pack([rows[1:] for rows in rows_KS], max_tokens=max_tokens, device=device, first_slot=FORGET_SLOT + 1)
        self._batches = [_train_batch(batch, tasks, segment_of, device) for batch in packed]

    def rows(self) -> list[tuple[tuple[int, int], ...]]:
        """Task and slot of every row of every batch, in the order in which `accumulate` runs them."""
        return [batch.packed.rows for batch in self._batches]

    def accumulate(self, number: int) -> TaskLosses:
        """Adds the gradients of batch `number` of `rows()` and gives its share of the losses (detached)."""
        batch = self._batches[number]
        is_reference_only = len(batch.forget_N) == 0 and batch.ref_retain_NV is None
        with torch.set_grad_enabled(not is_reference_only):
            packed = batch.packed
            logits_NV = logits_at(self._model, packed.ids_BT, packed.positions, rows_K=packed.rows_K, last=self._last)
            npo_K, kl_K = self._npo(logits_NV, batch), self._kl(logits_NV, batch)
            loss = (self._recipe.npo_coefficient * npo_K + self._recipe.kl_coefficient * kl_K).sum()
        if loss.requires_grad:
            loss.backward()
        return TaskLosses(npo_K.detach(), kl_K.detach())

    def reference_logprobs(self) -> list[float]:
        """Summed log-probability of each task's forgotten tokens under the reference; after the first pass only."""
        total_K = torch.zeros(self._num_tasks, device=self._device)
        for batch in self._batches:
            if len(batch.forget_N) and batch.ref_forget_W is None:
                raise ValueError("accumulate the batches once before the reference is read")
            if batch.ref_forget_W is not None:
                task_W = self._segment_task_W[batch.present_W]
                total_K += segment_sums(batch.ref_forget_W, task_W, self._num_tasks)
        values: list[float] = total_K.tolist()
        return values

    def _npo(self, logits_NV: Tensor, batch: _TrainBatch) -> Tensor:
        if not len(batch.forget_N):
            return torch.zeros(self._num_tasks, device=self._device)
        logprob_N = target_logprobs(logits_NV[batch.forget_N], batch.target_N)
        logprob_W = segment_sums(logprob_N, batch.segment_N, len(self._segment_task_W))[batch.present_W]
        if batch.ref_forget_W is None:
            batch.ref_forget_W = logprob_W.detach()
        loss_W = npo_loss(logprob_W, batch.ref_forget_W, beta=self._recipe.beta)
        task_W = self._segment_task_W[batch.present_W]
        return segment_sums(loss_W, task_W, self._num_tasks) / self._num_segments_K

    def _kl(self, logits_NV: Tensor, batch: _TrainBatch) -> Tensor:
        if not len(batch.retain_N):
            return torch.zeros(self._num_tasks, device=self._device)
        logprobs_NV = torch.log_softmax(logits_NV[batch.retain_N], dim=-1)
        if batch.ref_retain_NV is None:
            # Policy and reference are one: the term and its gradient are 0, so there is nothing to differentiate.
            batch.ref_retain_NV = logprobs_NV.detach()
            logprobs_NV = batch.ref_retain_NV
        kl_N = kl_divergence(logprobs_NV, batch.ref_retain_NV, direction=self._recipe.kl_direction)
        return segment_sums(kl_N, batch.retain_task_N, self._num_tasks) / self._num_retained_K


def _segments(span: StepTokens, recipe: RecipeConfig) -> tuple[tuple[int, ...], ...]:
    return span.words if recipe.objective == "per_word" else (span.content,)


def _retained(span: StepTokens, recipe: RecipeConfig) -> Sequence[int]:
    # The published code takes the distribution after the last token in, too.
    return span.content if recipe.retain == "content" else range(1, len(span.ids) + 1)


def _rows(task: UnlearnTask, recipe: RecipeConfig) -> list[SlotRow]:
    forget = SlotRow(task.forget.ids, [p - 1 for p in task.forget.content])
    retain = [SlotRow(span.ids, [p - 1 for p in _retained(span, recipe)]) for span in task.retain]
    return [forget, *retain]


def _train_batch(
    packed: PackedBatch, tasks: Sequence[UnlearnTask], segment_of: Sequence[Sequence[int]], device: torch.device
) -> _TrainBatch:
    forget = [n for n, read in enumerate(packed.reads) if read.slot == FORGET_SLOT]
    retain = [n for n, read in enumerate(packed.reads) if read.slot != FORGET_SLOT]
    reads = [packed.reads[n] for n in forget]

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    segment_N = tensor([segment_of[r.task][r.entry] for r in reads])
    return _TrainBatch(
        packed,
        forget_N=tensor(forget),
        target_N=tensor([tasks[r.task].forget.ids[tasks[r.task].forget.content[r.entry]] for r in reads]),
        segment_N=segment_N,
        present_W=segment_N.unique(),
        retain_N=tensor(retain),
        retain_task_N=tensor([packed.reads[n].task for n in retain]),
    )
