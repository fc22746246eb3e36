"""Goes on from many places of shared prefixes: a prefix is computed once, rows run in batches, each stops by itself.

Shapes: B rows, T tokens so far (padding included), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from fairwitness.lm.config import SamplingConfig
from fairwitness.lm.decoding import decode_rows, forward_cached
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode

CHUNK_TOKENS = 1024
ROOM_TOKENS = 256
"""Tokens that a cache has room for when it grows."""

LayerStates = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (1, H, T, D)."""


@dataclass(frozen=True)
class Chooser:
    """Chooses the tokens of one row: greedily, or drawn by the row's own `rng`, whatever rows are beside it."""

    config: SamplingConfig
    rng: np.random.Generator

    def choose(self, logits_V: Tensor) -> int:
        """The next token's id, from logits over the vocabulary. Probabilities are computed in float32 on the CPU."""
        if not self.config.temperature:
            return int(logits_V.argmax())
        probs_V = torch.softmax(logits_V.float().cpu() / self.config.temperature, dim=-1)
        sorted_V, order_V = probs_V.sort(descending=True, stable=True)
        # A token stays while the sum before it has not reached top_p, so that at least one does.
        keep_V = sorted_V.cumsum(0) - sorted_V < self.config.top_p
        if self.config.top_k:
            keep_V[self.config.top_k :] = False
        kept_V = sorted_V[keep_V].double().numpy()
        place = int(np.searchsorted(np.cumsum(kept_V), self.rng.random() * kept_V.sum(), side="right"))
        return int(order_V[min(place, len(kept_V) - 1)])


def can_share(lm: LanguageModel) -> bool:
    """Whether a prefix's keys and values can be cut anywhere: all layers attend to everything before them.

    Sliding windows drop old keys, and recurrent layers keep a state that cannot be cut.
    """
    layers = DynamicCache(config=lm.model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


class PrefixCache:
    """Owns the keys and values of one token sequence, as far as they were asked for."""

    def __init__(self, lm: LanguageModel, ids: Sequence[int]) -> None:
        self._lm, self._ids = lm, list(ids)
        self._cache: Any = None
        self.num_tokens = 0

    @torch.no_grad()
    def states(self, length: int) -> list[LayerStates]:
        """Keys and values of the first `length` tokens, per layer; computed where they are not there yet.

        Raises:
            ValueError: The sequence is shorter.
        """
        if length > len(self._ids):
            raise ValueError(f"the prefix has {len(self._ids)} tokens, not {length}")
        while self.num_tokens < length:
            self._extend(min(length, self.num_tokens + CHUNK_TOKENS))
        if not length:
            return []
        layers = self._cache.layers
        return [(layer.keys[:, :, :length], layer.values[:, :, :length]) for layer in layers]

    def _extend(self, end: int) -> None:
        device = self._lm.device
        ids_BT = torch.tensor([self._ids[self.num_tokens : end]], device=device)
        mask_BT = torch.ones((1, end), dtype=torch.long, device=device)
        output = forward_cached(self._lm, ids_BT, mask_BT, self._cache)
        self._cache, self.num_tokens = output.cache, end


def stacked(rows: Sequence[list[LayerStates]], lengths: Sequence[int]) -> Cache | None:
    """One cache of many rows, padded on the left with zeros; None where all rows are empty."""
    width = max(lengths, default=0)
    if not width:
        return None
    template = next(row for row in rows if row)
    layers: list[CacheLayerMixin] = []
    for number, states in enumerate(template):
        layer = GrowingLayer()
        parts = []
        for part, example in enumerate(states):
            _, heads, _, size = example.shape
            out_BHTD = example.new_zeros(len(rows), heads, width, size)
            for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                if length:
                    out_BHTD[place, :, width - length :] = row[number][part][0]
            parts.append(out_BHTD)
        layer.update(*parts)
        layers.append(layer)
    return Cache(layers=layers)


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values with room to grow, so that a new token does not copy all earlier ones."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> LayerStates:
        """Adds states (B, H, T, D) and gives all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = [key_states[:, :, :0], value_states[:, :, :0]]
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        for part, new_BHTD in enumerate((key_states, value_states)):
            if self._room[part].shape[-2] < end:
                self._room[part] = _with_room(self._room[part], new_BHTD, start, end + ROOM_TOKENS)
            self._room[part][:, :, start:end] = new_BHTD
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values


def _with_room(old_BHTD: Tensor, like_BHTD: Tensor, num_kept: int, size: int) -> Tensor:
    batch, heads, _, width = like_BHTD.shape
    room_BHTD = like_BHTD.new_zeros(batch, heads, size, width)
    if num_kept:
        room_BHTD[:, :, :num_kept] = old_BHTD[:, :, :num_kept]
    return room_BHTD


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
    """What is fed first, the mask over everything, and the cache of what is not fed."""
    # Equally many last tokens of each row are fed: padding behind a prefix would count as distance in the cache.
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
