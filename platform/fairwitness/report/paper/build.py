"""Makes the paper report of one or several runs: paper.html, csv/*.csv and figures/*.svg in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairwitness.errors import StoreError
from fairwitness.report.files import as_csv, replace_file
from fairwitness.report.paper.data import load_paper
from fairwitness.report.paper.page import render
from fairwitness.report.paper.registry import EXHIBITS
from fairwitness.report.svg import standalone

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
