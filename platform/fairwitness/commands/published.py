"""`fairwitness import-published …`: results of the published implementation, beside ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairwitness.launch.common import ended, say

if TYPE_CHECKING:
    from fairwitness.published.importing import ImportResult

app = typer.Typer()


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
