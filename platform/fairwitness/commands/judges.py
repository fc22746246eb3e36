"""`fairwitness judges …`: whether the judges of a run, or of two files, agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairwitness.commands.common import ended, say

if TYPE_CHECKING:
    from fairwitness.judges.agreement import PairAgreement

app = typer.Typer(help="Judges of a run: whether they agree.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `agree` a command of its own name."""


@app.command()
def agree(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A run directory; or two JSON-lines files of judgements as FUR's authors published them.",
            metavar="RUN | FILE FILE",
        ),
    ],
) -> None:
    """Cohen's kappa of all pairs of judges of a run, or of two files."""

    def act() -> int:
        for line in agreement_lines(paths):
            say(line)
        return 0

    raise typer.Exit(ended(act))


def agreement_lines(paths: Sequence[Path]) -> list[str]:
    """One line per pair of judges.

    Raises:
        ConfigError: Neither a run nor two files are given.
        DataError: Fewer than two judges have a verdict, or a file cannot be read.
        StoreError: There is no run, or it cannot be read.
    """
    from fairwitness.errors import ConfigError, DataError
    from fairwitness.judges.agreement import file_agreement, pair_agreements
    from fairwitness.records.run_dir import RunDirectory

    if len(paths) == 2:
        return [_line(file_agreement(paths))]
    if len(paths) != 1:
        raise ConfigError(f"{len(paths)} paths given; give one run directory, or two files of judgements")
    rows = RunDirectory.at(paths[0]).store(create=False).read("judgements").to_pandas()
    found = pair_agreements(rows)
    if not found:
        judges = ", ".join(sorted(rows["judge"].unique())) or "none"
        raise DataError(
            f"{paths[0]}: agreement needs two judges with verdicts on one question, there are: {judges}; run "
            "fairwitness judge with another judge"
        )
    return [_line(pair) for pair in found]


def _line(pair: PairAgreement) -> str:
    from fairwitness.report.format import decimal, percent

    found, kappa = pair.agreement, pair.agreement.kappa
    if kappa.value is None:
        value = f"undefined ({kappa.reason})"
    else:
        interval = "no interval" if kappa.low is None else f"{decimal(kappa.low)} to {decimal(kappa.high)}"
        value = f"{decimal(kappa.value)} ({interval})"
    shares = ""
    if found.observed is not None:
        shares = f", equal {percent(found.observed)}%, by chance {percent(found.expected)}%"
    only = f"; {pair.num_only[0]} and {pair.num_only[1]} judged by one of them only" if any(pair.num_only) else ""
    return f"{pair.kind}: {' / '.join(pair.judges)}: kappa {value}, n = {found.num_items}{shares}{only}"
