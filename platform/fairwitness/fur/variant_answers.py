"""The same questions asked of every variant of a grouped model, in packed passes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fairwitness.fur.packing import SlotRow, pack
from fairwitness.fur.tasks import Ids, Question
from fairwitness.lm.last_layer import last_modules
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import letter_answers, logits_at

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
