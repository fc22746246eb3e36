"""General capability (for example MMLU) before and after unlearning steps of a finished sweep."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.capability import fur_capability


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


def main(
    config: Annotated[Path, typer.Option(help="YAML file; see jobs/configs.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
    pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and what it costs.")] = False,
) -> None:
    """Measures whether unlearning a reasoning step costs the model its general abilities."""
    sys.exit(fur_capability(config, overrides or [], pool=pool.value if pool else None, dry=dry_run))


if __name__ == "__main__":
    typer.run(main)
