"""Greedy generation in left-padded batches, each row cut where its chain of thought ends.

The decoding loop is our own: transformers' `generate` reads sampling settings and penalties from the model's files,
lets the positions of a finished row run on beyond the context, and has no stop per row at a blank line.

Shapes: B rows, T tokens so far (padding included).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from fairwitness.lm.decoding import decode_rows
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode

Finish = Literal["blank_line", "eos", "length"]

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Generation:
    """What one prompt led to.

    Attributes:
        ids: The completion: a prefix of the generated ids, without EOS, blank line or white-space tokens at its end.
            May be empty.
        finish: Why generation ended: a blank line, EOS, or the limit (of `max_new_tokens` or of the context).
            None when nothing could be generated.
        error: Why nothing could be generated, or None.
    """

    ids: tuple[int, ...]
    finish: Finish | None
    error: str | None = None


@dataclass
class _Row:
    """State of one row; the last `num_begun` tokens of its prompt belong to the completion."""

    index: int
    prompt: Sequence[int]
    limit: int
    num_begun: int = 0
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def begun(self) -> list[int]:
        return list(self.prompt[len(self.prompt) - self.num_begun :])

    @property
    def going(self) -> bool:
        return self.limit > 0 and self.finish is None


def generate_greedy(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    batch_size: int,
    preserve_order: bool = False,
    stop_at_blank_line: bool = True,
    num_begun: Sequence[int] | None = None,
) -> list[Generation]:
    """Continues every prompt greedily until EOS, a blank line, `max_new_tokens` or the end of the context.

    White space at the start of a completion does not count as a blank line: a prompt that ends with a colon is often
    followed by one. A token that holds the end of the text and the blank line as well stays; tokens of white space
    only at the end go. In float32 the result of a row does not depend on the rows beside it.

    Args:
        lm: The model.
        prompts: Token ids per prompt, BOS included.
        max_new_tokens: Most tokens to generate per prompt, at least 1.
        batch_size: Rows per batch.
        preserve_order: One batch of all rows in the order given, whatever `batch_size`: for a model whose FF2 modules
            send the k-th block of rows through the k-th variant's weights. Rows that cannot be continued keep their
            place. Else rows are batched by length.
        stop_at_blank_line: Off to let a completion go on over blank lines.
        num_begun: For each prompt, how many of its last tokens are already the completion: they count for
            `max_new_tokens`, a blank line may lie between them and what is generated, and they are not in the result.
            None for no token anywhere.

    Returns:
        One result per prompt, in the order given. An empty prompt, or one that leaves no room in the context, gives
        a result with an error; the other rows go on. A completion that has reached `max_new_tokens` already gives no
        ids, with finish `length`.

    Raises:
        ValueError: `max_new_tokens` or `batch_size` below 1.
    """
    if max_new_tokens < 1 or batch_size < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens}, batch_size={batch_size}: both must be at least 1")
    begun = num_begun or [0] * len(prompts)
    pairs = enumerate(zip(prompts, begun, strict=True))
    rows = [_row(index, prompt, num, max_new_tokens, lm.facts.context_length) for index, (prompt, num) in pairs]
    for batch in _batches(rows, batch_size, preserve_order=preserve_order):
        _generate_batch(lm, batch, stop_at_blank_line=stop_at_blank_line)
    return [_result(lm, row, stop_at_blank_line=stop_at_blank_line) for row in rows]


def _row(index: int, prompt: Sequence[int], num_begun: int, max_new_tokens: int, context: int) -> _Row:
    room = context - len(prompt) if prompt else 0
    left = max_new_tokens - num_begun
    full: Finish | None = "length" if left <= 0 < room else None
    return _Row(index, prompt, max(0, min(left, room)), num_begun, finish=full)


def completion_end(text: str) -> int | None:
    """Offset of the first blank line after the first character that is not white space, or None if there is none."""
    start = len(text) - len(text.lstrip())
    match = _BLANK_LINE.search(text, start)
    return match.start() if match else None


def _batches(rows: list[_Row], batch_size: int, *, preserve_order: bool) -> Iterator[list[_Row]]:
    possible = [row for row in rows if row.limit > 0]
    if preserve_order:
        if possible:
            yield rows
        return
    possible.sort(key=lambda row: (-len(row.prompt), row.index))
    for start in range(0, len(possible), batch_size):
        yield possible[start : start + batch_size]


def _generate_batch(lm: LanguageModel, rows: list[_Row], *, stop_at_blank_line: bool) -> None:
    """Fills `ids` and `finish` of every row."""

    def advance(logits_BV: torch.Tensor) -> list[int]:
        chosen: list[int] = logits_BV.argmax(dim=-1).tolist()
        for row, token_id in zip(rows, chosen, strict=True):
            if row.going:
                _append(row, token_id, lm, stop_at_blank_line=stop_at_blank_line)
        return chosen

    decode_rows(lm, rows, *_left_padded(rows, lm), advance)


def _append(row: _Row, token_id: int, lm: LanguageModel, *, stop_at_blank_line: bool) -> None:
    if token_id in lm.facts.eos_ids:
        row.finish = "eos"
        return
    row.ids.append(token_id)
    # Only a token with a line break can complete a blank line, so the whole completion is rarely decoded.
    may_end = stop_at_blank_line and "\n" in decode(lm.tokenizer, [token_id])
    if may_end and completion_end(decode(lm.tokenizer, [*row.begun, *row.ids])) is not None:
        row.finish = "blank_line"
    elif len(row.ids) >= row.limit:
        row.finish = "length"


def _left_padded(rows: list[_Row], lm: LanguageModel) -> tuple[torch.Tensor, torch.Tensor]:
    # A row that cannot be continued keeps its place as one attended token, so that the batch keeps its order.
    prompts = [list(row.prompt) if row.going else [lm.facts.pad_id] for row in rows]
    width = max(len(prompt) for prompt in prompts)
    tokens = [[lm.facts.pad_id] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(tokens, device=lm.device), torch.tensor(mask, device=lm.device)


def _result(lm: LanguageModel, row: _Row, *, stop_at_blank_line: bool) -> Generation:
    if row.finish is None:
        context = lm.facts.context_length
        length = len(row.prompt)
        reason = (
            f"prompt of {length} tokens leaves no room in the context of {context}" if length else "prompt is empty"
        )
        return Generation((), None, reason)
    return Generation(tuple(_trimmed(lm, row, stop_at_blank_line=stop_at_blank_line)), row.finish)


def _trimmed(lm: LanguageModel, row: _Row, *, stop_at_blank_line: bool) -> list[int]:
    """The shortest prefix that holds the text before the blank line, white space at its end aside."""
    begun, ids = row.begun, row.ids
    text = decode(lm.tokenizer, [*begun, *ids])
    kept = text[: completion_end(text) if stop_at_blank_line else None].rstrip()
    num_kept = len(ids)
    while num_kept and decode(lm.tokenizer, [*begun, *ids[: num_kept - 1]]).startswith(kept):
        num_kept -= 1
    if num_kept and decode(lm.tokenizer, [*begun, *ids[:num_kept]])[len(kept) :].strip():
        num_kept -= 1  # the last token goes on with text after the blank line
    return ids[:num_kept]
