"""The loop that decodes rows token by token; what a row makes of its next token is the caller's.

Shapes: B rows, T tokens so far (padding included), V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fairwitness.errors import ModelError
from fairwitness.lm.model import LanguageModel


def position_inputs(model: PreTrainedModel, mask_BT: torch.Tensor, *, width: int) -> dict[str, torch.Tensor]:
    """Positions of the last `width` tokens, padding not counted; empty for a model that reads them off the mask.

    `mask_BT` is 1 for tokens (T so far), 0 for padding; `width` tokens are fed.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    return {"position_ids": (mask_BT.cumsum(dim=-1) - 1).clamp(min=0)[:, -width:]}


class Row(Protocol):
    """One row of a batch."""

    @property
    def going(self) -> bool:
        """Whether it takes more tokens."""


def forward_cached(lm: LanguageModel, fed_BT: Tensor, mask_BT: Tensor, cache: Any) -> Any:
    """The model's output for the last tokens of padded rows, with the cache grown by them.

    `fed_BT` is not in the cache; `mask_BT` (1 tokens, 0 padding) covers both. The cache may be changed in place.

    Returns:
        The output; `logits` are those of the last token alone.
    """
    return lm.model(
        input_ids=fed_BT,
        attention_mask=mask_BT,
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
        **position_inputs(lm.model, mask_BT, width=fed_BT.shape[1]),
    )


@torch.no_grad()
def decode_rows(
    lm: LanguageModel,
    rows: Sequence[Row],
    fed_BT: Tensor,
    mask_BT: Tensor,
    advance: Callable[[Tensor], Sequence[int]],
    *,
    cache: Any = None,
) -> None:
    """Goes on until no row is going. A finished row is fed masked padding, so its position stands still.

    Args:
        lm: The model.
        rows: The rows, in the order of the batch.
        fed_BT: Ids of the tokens that are not in the cache, padded on the left.
        mask_BT: 1 for tokens, 0 for padding, those in the cache included.
        advance: Is given the logits (B, V) of the next tokens, gives every row that is going its token, and returns
            the ids chosen, one a row; those of rows that are not going then are not used.
        cache: Keys and values of what is not fed.
    """
    while any(row.going for row in rows):
        output = forward_cached(lm, fed_BT, mask_BT, cache)
        cache = output.cache
        chosen = advance(output.logits[:, -1])
        fed = [token_id if row.going else lm.facts.pad_id for row, token_id in zip(rows, chosen, strict=True)]
        fed_BT = torch.tensor(fed, device=lm.device).unsqueeze(1)
        going_B1 = torch.tensor([[int(row.going)] for row in rows], device=lm.device)
        mask_BT = torch.cat([mask_BT, going_B1], dim=1)


def token_numbers(mask_BT: Any, num_rows: int, num_tokens: int, *, num_cached: int) -> torch.Tensor:
    """For each column of a call the number of its token in its row, from 0, and -1 for padding; on the CPU.

    Args:
        mask_BT: 1 for tokens, 0 for padding, those in the cache included; None where every column holds a token.
        num_rows: Rows of the call.
        num_tokens: Columns of the call.
        num_cached: Columns that the cache holds.

    Raises:
        ModelError: The mask is of another kind.
    """
    if mask_BT is None:
        return torch.arange(num_cached, num_cached + num_tokens).expand(num_rows, -1)
    if not isinstance(mask_BT, torch.Tensor) or mask_BT.ndim != 2:
        raise ModelError("this attention mask does not number the tokens; give a row of 1 (token) and 0 (padding) each")
    held_BT = mask_BT.cpu() != 0
    return (held_BT.cumsum(dim=1) - 1).masked_fill(~held_BT, -1)[:, -num_tokens:]
