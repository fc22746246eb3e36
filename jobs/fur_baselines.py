"""Other measures of faithfulness on a finished sweep. Runs with `python`, `ray job submit`, or `--pool local`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.baselines import fur_baselines


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


def main(
    config: Annotated[Path, typer.Option(help="YAML file; see jobs/configs/baselines.yaml.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
    pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
) -> None:
    """Measures the answers after changed chains of thought, and CC-SHAP, beside FUR."""
    sys.exit(fur_baselines(config, overrides or [], pool=pool.value if pool else None))


if __name__ == "__main__":
    typer.run(main)
