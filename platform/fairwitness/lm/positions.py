"""Positions of tokens in padded rows."""

from __future__ import annotations

import inspect

import torch
from transformers import PreTrainedModel


def position_inputs(model: PreTrainedModel, mask_BT: torch.Tensor, *, width: int) -> dict[str, torch.Tensor]:
    """Positions of the last `width` tokens, padding not counted; empty for a model that reads them off the mask.

    Args:
        model: The decoder.
        mask_BT: 1 for tokens, 0 for padding; B rows, T tokens so far.
        width: How many tokens are fed.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    return {"position_ids": (mask_BT.cumsum(dim=-1) - 1).clamp(min=0)[:, -width:]}
