"""Named recipes: our default, the paper's text, and the code that its authors published.

The paper's text leaves weight decay, schedule and numeric type open; there `paper` is as the default. Every value is
written out, so that a preset stays what it is when a default changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

_COMMON: Mapping[str, Any] = {
    "beta": 0.1,
    "npo_coefficient": 1.0,
    "kl_coefficient": 1.0,
    "num_iterations": 5,
    "schedule": "linear",
    "weight_decay": 0.01,
    "num_retain": 4,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": {
        **_COMMON,
        "objective": "per_word",
        "eligible": "content_words",
        "retain": "content",
        "kl_direction": "policy_from_reference",
        "method": {"kind": "ff2", "precision": "float32_master"},
    },
    "reference": {
        **_COMMON,
        "objective": "per_step",
        "eligible": "content_tokens",
        "retain": "reference",
        "kl_direction": "reference_from_policy",
        "method": {"kind": "ff2", "precision": "bf16_pure"},
    },
}
"""Values of a recipe by the preset's name; what is not named has the recipe's default."""


def expand_preset(given: Any) -> Any:
    """A recipe as a user writes it, with its preset replaced by values.

    Args:
        given: The name of a preset, or a mapping that may hold `preset` beside other keys, which take precedence, each
            as a whole: a `method` replaces the preset's. Anything else is returned as it is.

    Raises:
        ValueError: There is no preset of that name; the nearest one is named.
    """
    if isinstance(given, str):
        return dict(_values(given))
    if isinstance(given, Mapping) and "preset" in given:
        own = {key: value for key, value in given.items() if key != "preset"}
        return {**_values(given["preset"]), **own}
    return given


def _values(name: Any) -> Mapping[str, Any]:
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(str(name), list(PRESETS), n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown preset {name!r}{hint} (known are {', '.join(PRESETS)})")
