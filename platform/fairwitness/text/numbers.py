"""Numbers as all parts of the package write them."""

from __future__ import annotations

from typing import Any


def shown_rate(lr: float) -> str:
    """A learning rate in short scientific notation, four significant digits at most: 3e-5, 1.25e-2."""
    mantissa, exponent = f"{lr:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def method_name(kind: str, rank: Any) -> str:
    """A method, for people: `full FF2` or `LoRA, rank 8`.

    Args:
        kind: `ff2` or `lora`, as in the tables.
        rank: Rank of the adapters; not looked at for `ff2`.
    """
    return f"LoRA, rank {int(rank)}" if kind == "lora" else "full FF2"
