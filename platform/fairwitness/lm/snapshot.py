"""Checksums that show whether weights are bit for bit what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch


def checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and raw bytes of tensors; any numeric type, any device, any order.

    Two sets of tensors have the same checksum exactly if they are equal bit for bit: -0.0 and 0.0 differ, equal NaNs
    do not. No tensors give the checksum of nothing.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
