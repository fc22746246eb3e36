"""Goes on from many places of shared prefixes: a prefix is computed once, rows run in batches, each stops by itself.

Shapes: B rows, T tokens so far (padding included), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from fairwitness.lm.decoding import decode_rows
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.prefix_cache import PrefixCache, can_share, stacked
from fairwitness.lm.sampling import Chooser, SamplingConfig
from fairwitness.lm.tokens import decode

EOS, LENGTH = "eos", "length"


@dataclass(frozen=True)
class Branch:
    """One way to go on from a prefix.

    Attributes:
        at: How many tokens of the prefix stand before it.
        ids: What comes next, before the model goes on; may be empty.
        seed: Seed of the row's own generator.
    """

    at: int
    ids: tuple[int, ...]
    seed: int = 0


@dataclass(frozen=True)
class Tree:
    """A prefix and the branches that go on from it."""

    prefix: tuple[int, ...]
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Settings:
    """How rows are continued.

    Attributes:
        max_new_tokens: Most tokens per row.
        stops: Name of a stop to the texts that end a row; EOS and the limit always do.
        sampling: How tokens are chosen.
        max_cache_tokens: Most tokens, padding included, that the rows of one batch may have at their end.
        share_prefix: Off to compute every row from its first token (for comparison).
    """

    max_new_tokens: int
    stops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    max_cache_tokens: int = 65_536
    share_prefix: bool = True


@dataclass(frozen=True)
class Continuation:
    """What one branch led to.

    Attributes:
        ids: The generated ids before the stop: the longest prefix of them that holds nothing of the stop's text.
        finish: Name of the stop, `eos` or `length` (truncated); None where nothing could be generated.
        error: Why nothing could be generated, or None.
    """

    ids: tuple[int, ...]
    finish: str | None
    error: str | None = None


@dataclass
class _Row:
    place: tuple[int, int]
    tree: Tree
    branch: Branch
    limit: int
    chooser: Chooser
    ids: list[int] = field(default_factory=list)
    finish: str | None = None

    @property
    def going(self) -> bool:
        return self.limit > 0 and self.finish is None

    @property
    def length(self) -> int:
        return self.branch.at + len(self.branch.ids)

    @property
    def prompt(self) -> list[int]:
        return [*self.tree.prefix[: self.branch.at], *self.branch.ids]


def continue_trees(lm: LanguageModel, trees: Sequence[Tree], settings: Settings) -> list[list[Continuation]]:
    """Continues every branch of every tree.

    In float32 a row's tokens are those of the same row alone, from its first token, without a cache.

    Args:
        lm: The model.
        trees: Prefixes with their branches.
        settings: How.

    Returns:
        Per tree one result per branch, in order. A branch without tokens, or one that leaves no room in the context,
        gives a result with an error; the others go on.

    Raises:
        ValueError: A branch starts beyond its prefix, or a limit is below 1.
    """
    if settings.max_new_tokens < 1 or settings.max_cache_tokens < 1:
        raise ValueError("max_new_tokens and max_cache_tokens must be at least 1")
    rows = [row for number, tree in enumerate(trees) for row in _rows(lm, number, tree, settings)]
    caches = {number: PrefixCache(lm, tree.prefix) for number, tree in enumerate(trees)}
    share = settings.share_prefix and can_share(lm)
    for batch in _batches([row for row in rows if row.going], settings):
        _generate(lm, batch, settings, caches if share else None)
        for number in set(caches) - {row.place[0] for row in rows if row.going}:
            del caches[number]
    found = {row.place: _result(lm, row, settings) for row in rows}
    return [[found[number, i] for i in range(len(tree.branches))] for number, tree in enumerate(trees)]


def _rows(lm: LanguageModel, number: int, tree: Tree, settings: Settings) -> Iterator[_Row]:
    for index, branch in enumerate(tree.branches):
        if not 0 <= branch.at <= len(tree.prefix):
            raise ValueError(f"branch {index} starts at {branch.at}, its prefix has {len(tree.prefix)} tokens")
        length = branch.at + len(branch.ids)
        limit = min(settings.max_new_tokens, lm.facts.context_length - length) if length else 0
        chooser = Chooser(settings.sampling, np.random.default_rng(branch.seed))
        yield _Row((number, index), tree, branch, limit, chooser)


def _batches(rows: Sequence[_Row], settings: Settings) -> Iterator[list[_Row]]:
    """Rows of one tree together and those of similar length; as many as the limit of tokens allows, at least one."""
    order = sorted(
        rows, key=lambda row: (-max(len(row.tree.prefix), row.length), row.place[0], -row.length, row.place[1])
    )
    batch: list[_Row] = []
    for row in order:
        longest = max([row.length + row.limit, *(other.length + other.limit for other in batch)])
        if batch and (len(batch) + 1) * longest > settings.max_cache_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _generate(
    lm: LanguageModel, rows: list[_Row], settings: Settings, caches: Mapping[int, PrefixCache] | None
) -> None:
    def advance(logits_BV: torch.Tensor) -> list[int]:
        return [
            _advance(lm, row, logits_V, settings) if row.going else lm.facts.pad_id
            for row, logits_V in zip(rows, logits_BV, strict=True)
        ]

    fed_BT, mask_BT, cache = _start(lm, rows, caches)
    decode_rows(lm, rows, fed_BT, mask_BT, advance, cache=cache)


def _start(
    lm: LanguageModel, rows: Sequence[_Row], caches: Mapping[int, PrefixCache] | None
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """What is fed first, the mask over everything, and the cache of what is not fed.

    Rows are fed their last tokens, all equally many, so that no padding comes between a prefix and what follows it:
    models that measure distances by place in the cache would count it.
    """
    prompts = [row.prompt for row in rows]
    width = max(max(1, len(row.branch.ids)) for row in rows) if caches is not None else max(map(len, prompts))
    cached = [max(0, len(prompt) - width) for prompt in prompts]
    fed = [[lm.facts.pad_id] * (width - len(prompt)) + prompt[-width:] for prompt in prompts]
    depth = max(cached)
    mask = [
        [0] * (depth - num) + [1] * num + [0] * (width - len(prompt)) + [1] * min(width, len(prompt))
        for num, prompt in zip(cached, prompts, strict=True)
    ]
    cache = None
    if caches is not None:
        cache = stacked([caches[row.place[0]].states(n) for row, n in zip(rows, cached, strict=True)], cached)
    return torch.tensor(fed, device=lm.device), torch.tensor(mask, device=lm.device), cache


def _advance(lm: LanguageModel, row: _Row, logits_V: torch.Tensor, settings: Settings) -> int:
    token_id = row.chooser.choose(logits_V)
    if token_id in lm.facts.eos_ids:
        row.finish = EOS
        return token_id
    row.ids.append(token_id)
    longest = max((len(text) for texts in settings.stops.values() for text in texts), default=0)
    # A stop ends within the last token; every token adds at least one character, bytes of one character aside.
    tail = decode(lm.tokenizer, row.ids[-4 * longest - 4 :]) if longest else ""
    row.finish = next((name for name, texts in settings.stops.items() if any(t in tail for t in texts)), None)
    if row.finish is None and len(row.ids) >= row.limit:
        row.finish = LENGTH
    return token_id


def _result(lm: LanguageModel, row: _Row, settings: Settings) -> Continuation:
    if row.finish is None:
        return no_room(row.length, lm.facts.context_length)
    return Continuation(tuple(before_stop(lm.tokenizer, row.ids, settings.stops.get(row.finish, ()))), row.finish)


def no_room(length: int, context: int) -> Continuation:
    """The result of a row with nothing to go on from, or of one that leaves no room in the context."""
    reason = (
        f"{length} tokens leave no room in the context of {context}" if length else "there is no token to go on from"
    )
    return Continuation((), None, reason)


def before_stop(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], texts: Sequence[str]) -> list[int]:
    """The longest prefix of generated ids without the first of some texts; all ids where none of them is there."""
    text = decode(tokenizer, ids)
    starts = [place for place in map(text.find, texts) if place >= 0]
    num_kept = len(ids)
    while starts and num_kept and len(decode(tokenizer, ids[:num_kept])) > min(starts):
        num_kept -= 1
    return list(ids[:num_kept])
