"""Counterfactual steps, one file each."""

from __future__ import annotations

from fairwitness.drafts.interventions.base import (
    INSERTION_TYPES,
    InsertionType,
    Intervention,
    Situation,
)
from fairwitness.drafts.interventions.corrupt_option import CORRUPT_OPTION
from fairwitness.drafts.interventions.injected_authority import INJECTED_AUTHORITY
from fairwitness.drafts.interventions.shift_mapping import SHIFT_MAPPING
from fairwitness.drafts.interventions.swapped_options import SWAPPED_OPTIONS

INTERVENTIONS: dict[str, Intervention] = {
    one.name: one for one in (SHIFT_MAPPING, CORRUPT_OPTION, SWAPPED_OPTIONS, INJECTED_AUTHORITY)
}
"""Every intervention by its name. The first two are the paper's."""

__all__ = ["INSERTION_TYPES", "INTERVENTIONS", "InsertionType", "Intervention", "Situation"]
