"""Errors that a user can act on.

Every class here survives pickling, so an actor can raise one and the driver can catch it by name. The message is one
sentence that names the file, field or item, and one that says what to do.
"""

from __future__ import annotations


class FairwitnessError(Exception):
    """Base of all expected errors. The CLI prints the message without a traceback."""

    exit_code = 1


class ConfigError(FairwitnessError):
    """A configuration value is unknown, out of bounds, or contradicts another (exit code 2)."""

    exit_code = 2


class DataError(FairwitnessError):
    """A data set is missing, unreadable or empty (exit code 2)."""

    exit_code = 2


class ModelError(FairwitnessError):
    """A model or tokenizer cannot be used as it is (exit code 2)."""

    exit_code = 2


class ResourceError(FairwitnessError):
    """The cluster or machine can never give what was asked for (exit code 2)."""

    exit_code = 2


class StoreError(FairwitnessError):
    """Results cannot be read or written (exit code 2)."""

    exit_code = 2


class InfeasibleError(FairwitnessError):
    """No outcome satisfies the constraint; the message names the nearest miss (exit code 3)."""

    exit_code = 3


class ItemError(FairwitnessError):
    """One item cannot be measured; it becomes a `failed` row with this message as its reason."""
