"""Search for learning rates. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.lr_search import lr_search


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


def main(
    config: Annotated[Path, typer.Option(help="YAML file; see jobs/configs.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
    pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what a grid would take, at most.")] = False,
) -> None:
    """Finds the rate of highest efficacy among those that keep specificity."""
    sys.exit(lr_search(config, overrides or [], pool=pool.value if pool else None, dry=dry_run))


if __name__ == "__main__":
    typer.run(main)
