"""Numbers as all parts of the package write them."""

from __future__ import annotations


def shown_rate(lr: float) -> str:
    """A learning rate in short scientific notation, four significant digits at most: 3e-5, 1.25e-2."""
    mantissa, exponent = f"{lr:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
