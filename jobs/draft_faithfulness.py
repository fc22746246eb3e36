"""Faithfulness of thinking drafts. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.drafts import draft_faithfulness


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


def main(
    config: Annotated[Path, typer.Option(help="YAML file; see jobs/configs.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
    pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
) -> None:
    """Measures whether drafts follow their own steps, and answers their drafts."""
    sys.exit(draft_faithfulness(config, overrides or [], pool=pool.value if pool else None))


if __name__ == "__main__":
    typer.run(main)
