"""Judges the CoTs that a sweep's models wrote after unlearning. Runs with `python` or with `ray job submit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.judge import fur_judge


def main(
    config: Annotated[Path, typer.Option(help="YAML file; see jobs/configs.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
) -> None:
    """Asks whether CoTs before and after unlearning argue for the same answer."""
    sys.exit(fur_judge(config, overrides or []))


if __name__ == "__main__":
    typer.run(main)
