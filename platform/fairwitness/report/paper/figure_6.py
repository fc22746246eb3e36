"""Figure 6: efficacy against specificity of every rate, one drawing per data set."""

from __future__ import annotations

from dataclasses import replace

from fairwitness.report.panels import min_specificity
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Exhibit, Picture
from fairwitness.report.paper.matrix import empty
from fairwitness.report.paper.points import Point, left_out_notes, points_frame, points_of
from fairwitness.report.paper.scatter import EFFICACY, SPECIFICITY, Look, legend, looks, radius_of, scatter

NAME, TITLE = "figure_6", "Figure 6. Efficacy against specificity of every rate"
NO_CELL = "no rate was measured on a problem whose direct and CoT answers agree; jobs/fur_sweep.py measures rates"


def figure_6(data: PaperData) -> Exhibit:
    """A dot per model and rate; its area grows with ff-hard, the chosen rate is filled, the bound is drawn."""
    points = [point for point in points_of(data) if point.cell.specificity.value is not None]
    if not points:
        return empty(NAME, TITLE, NO_CELL)
    styles = looks(points, with_shapes=False)

    def look(point: Point) -> Look:
        return replace(styles[point.entry.label, point.entry.data_set], radius=radius_of(point.cell.ff_hard_any.value))

    pictures = []
    for number, name in enumerate(dict.fromkeys(point.entry.data_set for point in points), 1):
        own = [point for point in points if point.entry.data_set == name]
        # Half a point below the bound, where rounding reaches it.
        limit = min(min_specificity(point.entry.run) for point in own) - 0.5
        label = f"Efficacy against specificity on {name}, a dot per model and rate"
        svg = scatter(own, x=EFFICACY, y=SPECIFICITY, look=look, label=label, limit=limit)
        pictures.append(Picture(f"{NAME}_{number}", f"{name} (n = {len(own)} rates)", svg))
    pictures.append(Picture(f"{NAME}_legend", "Models", legend({label: style for (label, _), style in styles.items()})))
    notes = (
        "Bars: 95% intervals over problems. Area of a dot: ff-hard, which plays no part in the choice. Filled: the "
        "chosen rate. A rate is feasible in the tinted area.",
        *left_out_notes(data),
    )
    return Exhibit(NAME, TITLE, points_frame(points), pictures=tuple(pictures), notes=notes)
