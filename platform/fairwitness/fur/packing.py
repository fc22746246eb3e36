"""Rows of a group laid out so that a grouped model can run them.

A group has K tasks, each with the same number S of slots; a slot is one sequence per task. A packed batch holds equally
many slots of every task, not always the same ones, all rows of task 0 first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairwitness.lm.scoring import CALL_TOKENS, Positions, batches_by_length, pad_right


@dataclass(frozen=True)
class SlotRow:
    """One sequence and the columns after which logits are read."""

    ids: Sequence[int]
    cols: Sequence[int]


@dataclass(frozen=True)
class Read:
    """Which task, slot and entry of `SlotRow.cols` one of the N read positions belongs to."""

    task: int
    slot: int
    entry: int


@dataclass(frozen=True)
class PackedBatch:
    """Rows ready for a grouped forward pass.

    Attributes:
        ids_BT: Token ids, K·S rows, padded on the right.
        positions: The N positions read.
        reads: What each of them is, in the same order.
        rows: Task and slot of each of the B rows.
    """

    ids_BT: Tensor
    positions: Positions
    reads: tuple[Read, ...]
    rows: tuple[tuple[int, int], ...]


def pack(
    rows_KS: Sequence[Sequence[SlotRow]], *, max_tokens: int, device: torch.device, first_slot: int = 0
) -> list[PackedBatch]:
    """Packs rows of similar length together, at most `max_tokens` padded tokens a batch (or one row of each task).

    Each task's slots are taken by length, so that its n-th longest row stands beside the n-th longest of the others.

    Args:
        rows_KS: The same number of rows for every task.
        max_tokens: Padded tokens of a batch.
        device: Where the batches go.
        first_slot: Number of the first slot, where the rows are those of later slots only.
    """
    num_tasks = len(rows_KS)
    orders = [_longest_first(rows) for rows in rows_KS]
    longest = [max(len(rows_KS[k][s].ids) for k, s in enumerate(rank)) for rank in zip(*orders, strict=True)]
    batches = batches_by_length(
        longest, max_tokens=max(1, max_tokens // num_tasks), call_tokens=CALL_TOKENS / num_tasks
    )
    return [
        _pack_rows(rows_KS, [(k, order[rank]) for k, order in enumerate(orders) for rank in ranks], device, first_slot)
        for ranks in batches
    ]


def _longest_first(rows: Sequence[SlotRow]) -> list[int]:
    return sorted(range(len(rows)), key=lambda slot: (-len(rows[slot].ids), slot))


def _pack_rows(
    rows_KS: Sequence[Sequence[SlotRow]], places: Sequence[tuple[int, int]], device: torch.device, first_slot: int
) -> PackedBatch:
    reads, row_of, col_of = [], [], []
    for number, (task, slot) in enumerate(places):
        for entry, col in enumerate(rows_KS[task][slot].cols):
            reads.append(Read(task, first_slot + slot, entry))
            row_of.append(number)
            col_of.append(col)
    ids_BT = pad_right([rows_KS[task][slot].ids for task, slot in places], device)
    positions = Positions(torch.tensor(row_of, device=device), torch.tensor(col_of, device=device))
    return PackedBatch(ids_BT, positions, tuple(reads), tuple((task, first_slot + slot) for task, slot in places))
