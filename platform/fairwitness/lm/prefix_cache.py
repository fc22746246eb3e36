"""Keys and values of a prefix that many rows share, computed once.

Shapes: B rows, H heads, T tokens, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from fairwitness.lm.model import LanguageModel
from fairwitness.lm.positions import position_inputs

CHUNK_TOKENS = 1024

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
        output = self._lm.model(
            input_ids=ids_BT,
            attention_mask=mask_BT,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
            **position_inputs(self._lm.model, mask_BT, width=ids_BT.shape[1]),
        )
        self._cache, self.num_tokens = output.cache, end


def stacked(rows: Sequence[list[LayerStates]], lengths: Sequence[int]) -> DynamicCache | None:
    """One cache of many rows, padded on the left with zeros; None where all rows are empty.

    Args:
        rows: States of every row, see `PrefixCache.states`.
        lengths: Number of tokens of every row.
    """
    width = max(lengths, default=0)
    if not width:
        return None
    num_layers = max(len(row) for row in rows)
    template = next(row for row in rows if row)
    data = []
    for layer in range(num_layers):
        pair = []
        for part in (0, 1):
            _, heads, _, size = template[layer][part].shape
            out_BHTD = template[layer][part].new_zeros(len(rows), heads, width, size)
            for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                if length:
                    out_BHTD[number, :, width - length :] = row[layer][part][0]
            pair.append(out_BHTD)
        data.append((pair[0], pair[1]))
    return DynamicCache(ddp_cache_data=data)
