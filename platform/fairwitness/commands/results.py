"""What several runs, or results of others, are made into: the paper's tables, overlap of methods, imports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairwitness.commands.common import RunPath, ended, say
from fairwitness.errors import StoreError

if TYPE_CHECKING:
    from fairwitness.published.importing import ImportResult

app = typer.Typer()


@app.command()
def overlap(run: RunPath) -> None:
    """Prints, per LoRA rank, how many problems change their answer under full FF2 too, at the chosen rates."""

    def act() -> int:
        from fairwitness.analysis.frames import Results
        from fairwitness.analysis.overlap import method_groups
        from fairwitness.report.followups import overlap_lines

        results = Results(run)
        groups = method_groups(results.panels, results.run.rng)
        if not groups:
            raise StoreError(f"{run}: the run has one method; give the sweep several under `methods`")
        for line in overlap_lines(groups):
            say(line)
        say("The first method is the one named first. Problems: those that count under both, each at its chosen rate.")
        return 0

    raise typer.Exit(ended(act))


@app.command()
def paper(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, for example results/demo.", metavar="RUN…")],
    out: Annotated[Path, typer.Option(help="Folder for the page, the CSV files and the drawings.")],
) -> None:
    """Makes the tables and figures of the FUR paper from one or several runs, as a page, CSV and SVG."""

    def act() -> int:
        from fairwitness.report.paper.build import build_paper

        paths = build_paper(runs, out)
        for name, why in paths.missing.items():
            say(f"{name.replace('_', ' ')}: not in these runs: {why}")
        say(f"tables: {len(paths.csv)}, drawings: {len(paths.figures)}")
        say(f"paper report: {paths.html.resolve()}")
        return 0

    raise typer.Exit(ended(act))


@app.command("import-published")
def import_published(
    files: Annotated[
        list[Path], typer.Argument(help="Result, mistake, judgement and study files.", metavar="FILES...")
    ],
    out: Annotated[Path, typer.Option(help="Run directory for what they hold.")] = Path("results/published"),
    model: Annotated[str | None, typer.Option(help="The model, where a file's name does not tell it.")] = None,
    data_set: Annotated[str | None, typer.Option(help="The data set, where a file's name does not tell it.")] = None,
    lr: Annotated[float | None, typer.Option(help="The learning rate, where a file's name does not tell it.")] = None,
) -> None:
    """Reads result files of the published implementation into a run of their own, and reports on it."""

    def act() -> int:
        from fairwitness.config import validate
        from fairwitness.experiment.job import Report
        from fairwitness.published.importing import ImportConfig
        from fairwitness.published.importing import import_published as take
        from fairwitness.report.build import build_report

        place = out.resolve()
        given = {"model": model, "data_set": data_set, "lr": lr, "files": [str(path) for path in files]}
        config = validate(ImportConfig, {**given, "name": place.name, "dir": str(place.parent)}, "import-published")
        result = take(config, report=lambda path: Report((build_report(path).html,), ()))
        for fault in result.refused:
            say(f"refused: {fault}", stream=sys.stderr)
        for line in _lines(result):
            say(line)
        return result.exit_code

    raise typer.Exit(ended(act))


def _lines(result: ImportResult) -> Iterator[str]:
    for file in result.files:
        yield f"{file.path.name}: {len(file.taken)} lines of {file.shape}, {len(file.refused)} refused"
    yield from _judged(result)
    yield "rows: " + ", ".join(f"{number} {table}" for table, number in result.num_rows.items())
    if result.refused:
        yield f"refused lines: {len(result.refused)}; each is named above and in the report"
    if result.report:
        yield f"report: {result.report.resolve()}"


def _judged(result: ImportResult) -> Iterator[str]:
    from fairwitness.analysis.judgements import judged_cells
    from fairwitness.report.followups import sentence

    if result.num_rows.get("judgements"):
        cells = judged_cells(result.run.store(create=False), seed=result.seed, cell_keys=result.cell_keys)
        yield from map(sentence, cells)
