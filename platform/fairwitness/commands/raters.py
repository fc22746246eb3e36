"""`fairwitness raters …`: steps for people to rate, their ratings, and how these go with ff-soft."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairwitness.commands.common import RunPath, ended, say

if TYPE_CHECKING:
    from fairwitness.raters.export import Exported
    from fairwitness.raters.ratings import Imported

app = typer.Typer(help="Steps for people to rate, their ratings, and how these go with ff-soft.", no_args_is_help=True)

Count = Annotated[int, typer.Option(min=0, help="Steps of this bin per model and data set.")]


@app.command("export")
def raters_export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Folder for the files; made when it is missing.", metavar="OUT")],
    high: Count = 15,
    moderate: Count = 5,
    neutral: Count = 0,
    negative: Count = 5,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draw; by default the run's own.")] = None,
    lr: Annotated[
        float | None, typer.Option(help="Rate to take steps of, instead of the one the rule chooses.")
    ] = None,
) -> None:
    """Draws steps by their ff-soft and writes a form and a sheet for raters, and apart from them the key."""

    def act() -> int:
        from fairwitness.raters.export import export_study

        wanted = {"negative": negative, "neutral": neutral, "moderate": moderate, "high": high}
        asked = {name: number for name, number in wanted.items() if number}
        for line in _exported(export_study(run, out, asked, seed=seed, lr=lr)):  # type: ignore[arg-type]
            say(line)
        return 0

    raise typer.Exit(ended(act))


@app.command("import")
def raters_import(
    run: RunPath,
    files: Annotated[list[str], typer.Argument(help="CSV files of ratings.", metavar="RATINGS...")],
    rater: Annotated[str | None, typer.Option(help="Who rated, where a file does not say.")] = None,
) -> None:
    """Takes ratings into the run. A line that cannot be used is named (exit code 1); the rest is taken."""

    def act() -> int:
        from fairwitness.config import validate
        from fairwitness.raters.ratings import StudyImportConfig, import_ratings

        config = validate(StudyImportConfig, {"run": str(run), "files": files, "rater": rater}, "raters import")
        found = import_ratings(config)
        for fault in found.refused:
            say(f"refused: {fault}", stream=sys.stderr)
        for line in _imported(found):
            say(line)
        return found.exit_code

    raise typer.Exit(ended(act))


@app.command("show")
def raters_show(run: RunPath) -> None:
    """Shows how ratings go with ff-soft: Pearson, Spearman and the mean rating of each bin, with intervals."""

    def act() -> int:
        from fairwitness.analysis.ratings import PAPER_PEARSON, describe_summary, run_ratings, summarise_ratings
        from fairwitness.errors import DataError
        from fairwitness.records.run_dir import RunDirectory

        summaries = summarise_ratings(run_ratings(RunDirectory.at(run).store(create=False)))
        if not summaries:
            raise DataError(f"{run}: holds no rating yet; take some in with fairwitness raters import")
        for summary in summaries:
            for line in describe_summary(summary):
                say(line)
        say(f"for comparison, Pearson over the paper's 100 steps: {PAPER_PEARSON}")
        return 0

    raise typer.Exit(ended(act))


def _exported(found: Exported) -> Iterator[str]:
    from fairwitness.report.format import rate

    for group, bins in found.drawn:
        parts = ", ".join(f"{len(part.chosen)} {part.bin}" for part in bins)
        yield f"{group.label}, rate {rate(group.lr)}: {parts}"
        for part in (part for part in bins if part.is_short):
            yield f"  {part.bin}: {part.wanted} wanted, {part.available} there"
    for group in found.empty:
        yield f"{group.label}: none ({group.reason or 'no measured step of a problem that counts'})"
    yield f"{found.num_steps} steps to rate"
    yield f"for raters: {found.form.parent.resolve()} (form.html or {found.sheet.name})"
    yield f"not for raters: {found.key.resolve()}"


def _imported(found: Imported) -> Iterator[str]:
    for name, number in sorted(found.raters.items()):
        yield f"{name}: {number} ratings"
    yield (
        f"{found.num_new} new ratings, {found.num_known} known before, {found.num_without} steps without a rating, "
        f"refused lines: {len(found.refused)}"
    )
