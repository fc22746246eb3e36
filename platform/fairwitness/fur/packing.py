"""Rows of a group laid out so that a grouped model can run them.

A group has K tasks, each with some slots; a slot is one sequence. A packed batch holds rows of similar length of
whichever tasks have them, all rows of task 0 first.
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
        ids_BT: Token ids, padded on the right.
        positions: The N positions read.
        reads: What each of them is, in the same order.
        rows: Task and slot of each of the B rows.
        rows_K: Number of rows of each of the K tasks.
    """

    ids_BT: Tensor
    positions: Positions
    reads: tuple[Read, ...]
    rows: tuple[tuple[int, int], ...]
    rows_K: tuple[int, ...]


def pack(
    rows_KS: Sequence[Sequence[SlotRow]], *, max_tokens: int, device: torch.device, first_slot: int = 0
) -> list[PackedBatch]:
    """Packs rows of similar length together, at most `max_tokens` padded tokens a batch (or one row).

    Args:
        rows_KS: The rows of every task.
        max_tokens: Padded tokens of a batch.
        device: Where the batches go.
        first_slot: Number of the first slot, where the rows are those of later slots only.
    """
    places = [(task, slot) for task, rows in enumerate(rows_KS) for slot in range(len(rows))]
    lengths = [len(rows_KS[task][slot].ids) for task, slot in places]
    batches = batches_by_length(lengths, max_tokens=max_tokens)
    return [_pack_rows(rows_KS, sorted(places[i] for i in batch), device, first_slot) for batch in batches]


def _pack_rows(
    rows_KS: Sequence[Sequence[SlotRow]], places: Sequence[tuple[int, int]], device: torch.device, first_slot: int
) -> PackedBatch:
    reads, row_of, col_of = [], [], []
    rows_K = [0] * len(rows_KS)
    for number, (task, slot) in enumerate(places):
        rows_K[task] += 1
        for entry, col in enumerate(rows_KS[task][slot].cols):
            reads.append(Read(task, first_slot + slot, entry))
            row_of.append(number)
            col_of.append(col)

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return PackedBatch(
        ids_BT=pad_right([rows_KS[task][slot].ids for task, slot in places], device),
        positions=Positions(tensor(row_of), tensor(col_of)),
        reads=tuple(reads),
        rows=tuple((task, first_slot + slot) for task, slot in places),
        rows_K=tuple(rows_K),
    )
