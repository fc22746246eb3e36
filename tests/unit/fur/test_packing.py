"""Rows of a group laid out in batches: every read of every task once, task 0 first, within the limit."""

from __future__ import annotations

import random

import pytest
import torch

from fairwitness.fur.packing import Read, SlotRow, pack

CPU = torch.device("cpu")


def _rows(num_tasks: int, num_slots: int, seed: int = 0) -> list[list[SlotRow]]:
    draw = random.Random(seed)

    def row() -> SlotRow:
        length = draw.randint(1, 30)
        return SlotRow(
            [draw.randrange(1, 99) for _ in range(length)], draw.sample(range(length), draw.randint(0, length))
        )

    return [[row() for _ in range(num_slots)] for _ in range(num_tasks)]


@pytest.mark.parametrize("max_tokens", [1, 64, 200, 10_000])
@pytest.mark.parametrize("num_tasks", [1, 3])
def test_every_read_is_there_once_and_points_at_its_token(num_tasks: int, max_tokens: int) -> None:
    rows_KS = _rows(num_tasks, 6)
    batches = pack(rows_KS, max_tokens=max_tokens, device=CPU)
    seen = []
    for batch in batches:
        assert len(batch.ids_BT) == len(batch.rows)
        for read, row, col in zip(batch.reads, *map(torch.Tensor.tolist, batch.positions), strict=True):
            slot_row = rows_KS[read.task][read.slot]
            assert batch.rows[row] == (read.task, read.slot)
            assert col == slot_row.cols[read.entry]
            assert batch.ids_BT[row, col] == slot_row.ids[col]
            seen.append(read)
    expected = [Read(k, s, n) for k in range(num_tasks) for s in range(6) for n in range(len(rows_KS[k][s].cols))]
    assert sorted(seen, key=lambda r: (r.task, r.slot, r.entry)) == expected


@pytest.mark.parametrize("max_tokens", [1, 64, 200, 10_000])
def test_a_batch_holds_rows_task_by_task_within_the_limit(max_tokens: int) -> None:
    rows_KS = _rows(4, 6)
    seen = []
    for batch in pack(rows_KS, max_tokens=max_tokens, device=CPU):
        assert [task for task, _ in batch.rows] == [task for task in range(4) for _ in range(batch.rows_K[task])]
        assert batch.ids_BT.numel() <= max_tokens or len(batch.rows) == 1
        for (task, slot), ids in zip(batch.rows, batch.ids_BT.tolist(), strict=True):
            row = rows_KS[task][slot]
            assert ids == [*row.ids, *[0] * (len(ids) - len(row.ids))]
        seen += batch.rows
    assert sorted(seen) == [(task, slot) for task in range(4) for slot in range(6)]


def test_slots_of_similar_length_share_a_batch() -> None:
    lengths = [2, 20, 3, 19]
    rows_KS = [[SlotRow([7] * length, [0]) for length in lengths] for _ in range(2)]
    batches = pack(rows_KS, max_tokens=80, device=CPU)
    assert [sorted({slot for _, slot in batch.rows}) for batch in batches] == [[1, 3], [0, 2]]


def test_a_batch_need_not_have_a_row_of_every_task() -> None:
    rows_KS = [[SlotRow([7] * length, [0]) for length in lengths] for lengths in ([5, 20, 19], [18, 6])]
    batches = pack(rows_KS, max_tokens=60, device=CPU, first_slot=3)
    assert [batch.rows for batch in batches] == [((0, 4), (0, 5), (1, 3)), ((0, 3), (1, 4))]
    assert [batch.rows_K for batch in batches] == [(2, 1), (1, 1)]
    assert [{read.slot for read in batch.reads} for batch in batches] == [{3, 4, 5}, {3, 4}]
    assert [batch.ids_BT.shape for batch in batches] == [(3, 20), (2, 6)]
    assert [batch.rows_K for batch in pack(rows_KS, max_tokens=1, device=CPU)] == [
        (1, 0),
        (1, 0),
        (0, 1),
        (0, 1),
        (1, 0),
    ]


def test_rows_without_reads_stay_in_the_batch() -> None:
    (batch,) = pack([[SlotRow([5, 6], [])]], max_tokens=10, device=CPU)
    assert batch.reads == ()
    assert batch.ids_BT.tolist() == [[5, 6]]
    assert [len(part) for part in batch.positions] == [0, 0]
