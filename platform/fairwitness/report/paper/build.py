"""Makes the paper report of one or several runs: paper.html, csv/*.csv and figures/*.svg in one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fairwitness.errors import StoreError
from fairwitness.report.files import as_csv, asset, environment, replace_file
from fairwitness.report.format import rate
from fairwitness.report.paper.data import PEARSON, Entry, PaperData, load_paper
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.followup_tables import table_2, table_3, table_4, table_10
from fairwitness.report.paper.rate_figures import figure_5, figure_6, figure_7, figure_9, figure_10
from fairwitness.report.paper.scatter import correlation_of, correlation_text, p_text, points_of
from fairwitness.report.paper.step_figures import figure_3, figure_4
from fairwitness.report.paper.tables import table_1, table_5, table_6, table_8, table_11
from fairwitness.report.svg import standalone

EXHIBITS: Mapping[str, Callable[[PaperData], Exhibit]] = {
    make.__name__: make
    for make in (
        *(table_1, table_2, table_3, table_4, table_5, table_6, table_8, table_10, table_11),
        *(figure_3, figure_4, figure_5, figure_6, figure_7, figure_9, figure_10),
    )
}
"""What makes each exhibit, by its name; one that the runs have no data for says which job fills it."""


MAX_EXAMPLES = 3
"""Examples of a figure that are shown at once; the others open on demand."""


@dataclass(frozen=True)
class Line:
    """One line of the overview: an entry, its rate, and how many problems count."""

    entry: Entry
    rate: str
    num_asked: int
    num_counted: int | None


def render(data: PaperData, exhibits: Sequence[Exhibit]) -> str:
    """The whole page. Equal arguments give equal text.

    Args:
        data: What was measured.
        exhibits: The tables and figures, in order.
    """
    found = None if not (points := points_of(data)) else correlation_of(points)
    return (
        environment()
        .get_template("paper.html.j2")
        .render(
            css=Markup(asset("report.css") + asset("paper.css")),
            runs=list(dict.fromkeys(entry.run_name for entry in data.entries)),
            lines=[_line(entry) for entry in data.entries],
            several_runs=len({entry.run_name for entry in data.entries}) > 1,
            exhibits=exhibits,
            correlation=None if found is None else ", ".join(filter(None, (correlation_text(found), p_text(found)))),
            published_pearson=PEARSON,
            svg=Markup,
            max_examples=MAX_EXAMPLES,
        )
    )


def _line(entry: Entry) -> Line:
    cell = entry.cell
    shown = "–" if cell is None else rate(cell.lr) + ("" if entry.is_chosen else " †")
    counted = None if cell is None else cell.num_problems - sum(cell.excluded.values())
    return Line(entry, shown, len(entry.panel.cots), counted)


PAGE = "paper.html"


@dataclass(frozen=True)
class PaperPaths:
    """The files of a paper report.

    Attributes:
        html: The page.
        csv: The data of each exhibit that has some, by its name.
        figures: The drawings, by their names.
        missing: For each exhibit without data, the line that says which job fills it.
    """

    html: Path
    csv: Mapping[str, Path]
    figures: Mapping[str, Path]
    missing: Mapping[str, str]


def build_paper(run_dirs: Sequence[Path], out: Path) -> PaperPaths:
    """Makes the report from what is stored, replacing an earlier one. Equal stores give equal bytes.

    Args:
        run_dirs: Run directories, each once.
        out: Folder for the files; made when it is missing. Files of an earlier report that this one lacks are removed.

    Raises:
        StoreError: There is no run, a store cannot be read, two runs hold the same rows, or `out` cannot be written.
    """
    data = load_paper([Path(run_dir) for run_dir in run_dirs])
    exhibits = [make(data) for make in EXHIBITS.values()]
    page = render(data, exhibits)
    tables = {one.name: as_csv(one.frame) for one in exhibits if not one.frame.empty}
    drawings = {picture.name: standalone(picture.svg) for one in exhibits for picture in one.pictures}
    paths = PaperPaths(
        html=out / PAGE,
        csv={name: out / "csv" / f"{name}.csv" for name in tables},
        figures={name: out / "figures" / f"{name}.svg" for name in drawings},
        missing={one.name: one.missing for one in exhibits if one.missing is not None},
    )
    try:
        _remove_earlier(out, keep={*paths.csv.values(), *paths.figures.values()})
        for name, text in tables.items():
            replace_file(paths.csv[name], text)
        for name, svg in drawings.items():
            replace_file(paths.figures[name], svg)
        replace_file(paths.html, page)
    except OSError as error:
        raise StoreError(f"{out}: the paper report cannot be written ({error}); choose another --out") from error
    return paths


def _remove_earlier(out: Path, *, keep: set[Path]) -> None:
    for folder, suffix in (("csv", ".csv"), ("figures", ".svg")):
        (out / folder).mkdir(parents=True, exist_ok=True)
        names = tuple(EXHIBITS)
        for path in (out / folder).glob(f"*{suffix}"):
            if path not in keep and path.stem.startswith(names):
                path.unlink()
