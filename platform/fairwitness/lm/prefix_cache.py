"""Keys and values of a prefix that many rows share, computed once.

Shapes: B rows, H heads, T tokens, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from fairwitness.lm.decoding import forward_cached
from fairwitness.lm.model import LanguageModel

CHUNK_TOKENS = 1024
ROOM_TOKENS = 256
"""Tokens that a cache has room for when it grows."""

LayerStates = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (1, H, T, D)."""


def can_share(lm: LanguageModel) -> bool:
    """Whether a prefix's keys and values can be cut anywhere: all layers attend to everything before them.

    Sliding windows drop old keys, and recurrent layers keep a state that cannot be cut.
    """
    layers = DynamicCache(config=lm.model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


class PrefixCache:
    """Owns the keys and values of one token sequence, as far as they were asked for."""

    def __init__(self, lm: LanguageModel, ids: Sequence[int]) -> None:
        """Prepares; nothing is computed yet.

        Args:
            lm: The model; see `can_share`.
            ids: The sequence.
        """
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
    """One cache of many rows, padded on the left with zeros; None where all rows are empty.

    Args:
        rows: States of every row, see `PrefixCache.states`.
        lengths: Number of tokens of every row.
    """
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
