"""Rows of a group laid out so that a grouped model can run them.

A group has K tasks, each with the same number S of slots; a slot is one sequence per task. A packed batch holds some slots of
all tasks, all rows of task 0 first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairwitness.lm.scoring import Positions, batches_by_length, pad_right


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


def pack(rows_KS: Sequence[Sequence[SlotRow]], *, max_tokens: int, device: torch.device) -> list[PackedBatch]:
    """Packs slots of similar length together, at most `max_tokens` padded tokens a batch (or one slot)."""
    slots = range(len(rows_KS[0]))
    longest = [max(len(task[s].ids) for task in rows_KS) for s in slots]
    batches = batches_by_length(longest, max_tokens=max(1, max_tokens // len(rows_KS)))
    return [_pack_slots(rows_KS, batch, device) for batch in batches]


def _pack_slots(rows_KS: Sequence[Sequence[SlotRow]], slots: Sequence[int], device: torch.device) -> PackedBatch:
    rows = tuple((task, slot) for task in range(len(rows_KS)) for slot in slots)
    reads, row_of, col_of = [], [], []
    for number, (task, slot) in enumerate(rows):
        for entry, col in enumerate(rows_KS[task][slot].cols):
            reads.append(Read(task, slot, entry))
            row_of.append(number)
            col_of.append(col)
    ids_BT = pad_right([rows_KS[task][slot].ids for task, slot in rows], device)
    positions = Positions(torch.tensor(row_of, device=device), torch.tensor(col_of, device=device))
    return PackedBatch(ids_BT, positions, tuple(reads), rows)
