"""Figures 3 to 7, 9 and 10 of a run whose figures are known by hand, and the drawings themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from fairwitness.report.paper.data import PaperData, load_paper
from fairwitness.report.paper.exhibit import Exhibit, Picture
from fairwitness.report.paper.rate_figures import (
    LEGEND,
    NO_CELL,
    ONE_METHOD,
    figure_5,
    figure_6,
    figure_7,
    figure_9,
    figure_10,
)
from fairwitness.report.paper.scatter import Look, correlation_of, legend, mark, points_of, radius_of
from fairwitness.report.paper.step_figures import NO_COT_AFTER, Step, figure_3, figure_4, heat_map, shade, wrapped
from tests.unit.report.paper.conftest import EFFICACY, HIGH, HOSTILE, LOW, MIDDLE

METHODS = [("ff2", None), ("lora", 8), ("lora", 128)]
CIRCLE, RECT, TEXT = (f"{{http://www.w3.org/2000/svg}}{name}" for name in ("circle", "rect", "text"))


def parsed(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def texts(picture: Picture) -> list[str]:
    return ["".join(one.itertext()) for one in parsed(picture).iter(TEXT)]


def test_figure_3_shows_the_step_with_the_largest_effect(hand_data: PaperData) -> None:
    exhibit = figure_3(hand_data)
    assert len(exhibit.pictures) == 4
    frame = exhibit.frame[(exhibit.frame["model"] == "own") & (exhibit.frame["data_set"] == "pets")]
    # At the chosen rate no answer stays changed and ff-soft is the same; the first step of p0 has a CoT after it.
    assert set(zip(frame["problem_id"], frame["cot_step_index"], frame["lr"], strict=True)) == {("p0", 0, MIDDLE)}
    by_iteration = frame.pivot_table(index="iteration", columns="letter", values="probability").to_dict("index")
    assert by_iteration == {0: {"A": 0.7, "B": 0.3}, 1: {"A": 0.2, "B": 0.8}, 2: {"A": 0.6, "B": 0.4}}
    shown = dict(exhibit.pictures[3].texts)
    assert shown["Question"] == HOSTILE
    assert shown["Choices"] == "(A) <b>one</b>\n(B) two"
    assert shown["Step 1, unlearned"] == "Step 0 of <i>p0</i>."
    assert shown["CoT before"] == "Step 0 of <i>p0</i>. Step 1 of <i>p0</i>."
    assert shown["CoT after"] == "Now <b>another</b> way."
    bars = [float(bar.attrib["height"]) for bar in parsed(exhibit.pictures[3]).iter(RECT)]
    assert [height / 118 for height in bars] == pytest.approx([0.7, 0.3, 0.2, 0.8, 0.6, 0.4], abs=1e-3)


def test_figure_3_prefers_a_changed_answer_and_says_where_no_cot_was_written(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    data = load_paper([make_run(tmp_path, models=["own"], data_sets=["pets"], rates=[HIGH])])
    exhibit = figure_3(data)
    # Both p0 (step 0) and p1 (step 1) stay changed; p0's has a CoT.
    assert set(exhibit.frame["problem_id"]) == {"p0"}
    entry = data.entries[0]
    entry.panel.steps["cot_after_text"] = None
    (picture,) = figure_3(data).pictures
    assert dict(picture.texts)["CoT after"] == NO_COT_AFTER


def test_figure_4_shows_every_step_of_the_problem_that_differs_most(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    exhibit = figure_4(load_paper([make_run(tmp_path, models=["own"], data_sets=["pets"], rates=[HIGH])]))
    assert list(exhibit.frame["problem_id"]) == ["p0", "p0"]
    assert list(exhibit.frame["ff_soft"]) == pytest.approx([0.5, 0.1])
    assert list(exhibit.frame["text"]) == ["Step 0 of <i>p0</i>.", "Step 1 of <i>p0</i>."]
    (picture,) = exhibit.pictures
    assert [shown for shown in texts(picture) if shown.startswith(("+", "Step"))] == [
        *("Step 0 of <i>p0</i>.", "+0.50", "Step 1 of <i>p0</i>.", "+0.10")
    ]
    assert [bar.attrib["fill"] for bar in parsed(picture).iter(RECT)] == [shade(0.5), shade(0.1)]


def test_a_step_that_was_not_measured_is_drawn_without_a_shade() -> None:
    picture = Picture("x", "", heat_map([Step(1, "2.", None), Step(2, "A fox.", -0.3)]))
    assert texts(picture) == ["1", "2.", "–", "2", "A fox.", "−0.30", "Δp"]
    first, second = [bar.attrib["fill"] for bar in parsed(picture).iter(RECT)]
    assert (first, second) == (shade(None), shade(-0.3))


def test_shades_go_from_grey_to_red_and_to_green() -> None:
    def parts(value: float) -> list[int]:
        return [int(shade(value)[place : place + 2], 16) for place in (1, 3, 5)]

    for value in (0.1, 0.5, 1.0):
        red, green, blue = parts(value)
        assert red > green > blue
        red, green, blue = parts(-value)
        assert green > blue > red
    assert parts(1.0)[1] < parts(0.5)[1] < parts(0.1)[1]
    assert parts(0.0) == parts(0.004) == [240, 242, 243]
    assert shade(3.0) == shade(1.0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("one two three", ["one two", "three"]),
        ("", []),
        ("  a\n\nb  ", ["  a", "b"]),
        ("abcdefghijklmnop", ["abcdefgh", "ijklmnop"]),
        ("植物在光合作用", ["植物在光", "合作用"]),
        ("so 植物在光", ["so 植物在", "光"]),
    ],
)
def test_texts_are_wrapped_by_columns(content: str, expected: list[str]) -> None:
    assert wrapped(content, 9) == expected


def test_figure_5_compares_methods_on_the_same_cots(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = load_paper([make_run(tmp_path, models=["own"], methods=METHODS)])
    exhibit = figure_5(data)
    bars = exhibit.frame[exhibit.frame["row"] == "ff_hard"]
    assert len(bars) == 6
    assert set(bars["ff_hard_any_numerator"]) == {1}
    overlap = exhibit.frame[exhibit.frame["row"] == "overlap"]
    assert len(overlap) == 8  # two data sets, two ranks, any and final iteration
    at_any = overlap[overlap["flip_at"] == "any"]
    assert set(at_any["num_both"]) == {1}
    assert set(at_any["num_neither"]) == {2}
    assert set(at_any["jaccard"]) == {1.0}
    heights = [float(bar.attrib["height"]) for bar in parsed(exhibit.pictures[0]).iter(RECT)]
    assert [height / 190 for height in heights[:6]] == pytest.approx([1 / 3] * 6, abs=1e-3)
    assert [shown for shown in texts(exhibit.pictures[0]) if "rank" in shown] == ["LoRA, rank 8", "LoRA, rank 128"]


def test_figure_5_puts_runs_of_one_method_together(make_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, name, models=["own"], data_sets=["pets"], methods=[method])
        for name, method in (("full", METHODS[0]), ("rank8", METHODS[1]))
    ]
    exhibit = figure_5(load_paper(runs))
    assert list(exhibit.frame["row"]) == ["ff_hard", "ff_hard", "overlap", "overlap"]
    assert texts(exhibit.pictures[0]).count("own") == 1  # one group of two bars
    assert figure_5(load_paper(runs[:1])).missing == ONE_METHOD


def test_figure_6_has_a_drawing_per_data_set_with_a_dot_per_model_and_rate(hand_data: PaperData) -> None:
    exhibit = figure_6(hand_data)
    assert [picture.caption for picture in exhibit.pictures] == [
        *("arc_challenge (n = 6 rates)", "pets (n = 6 rates)", "Models")
    ]
    dots = list(parsed(exhibit.pictures[0]).iter(CIRCLE))
    assert len(dots) == 6
    radii = sorted({float(dot.attrib["r"]) for dot in dots})
    assert radii == pytest.approx([radius_of(0), radius_of(1 / 3), radius_of(2 / 3)], abs=0.01)
    filled = [dot for dot in dots if dot.attrib["fill"] != "#ffffff"]
    assert [float(dot.attrib["r"]) for dot in filled] == pytest.approx([radius_of(1 / 3)] * 2, abs=0.01)
    assert len(exhibit.frame) == 12


def test_the_area_of_a_dot_grows_with_ff_hard() -> None:
    areas = [radius_of(share) ** 2 for share in (0.0, 0.25, 0.5, 1.0)]
    assert np.diff(areas) == pytest.approx([22.75, 22.75, 45.5])
    assert radius_of(None) == radius_of(0.0)


def test_figure_7_correlates_efficacy_and_ff_hard(hand_data: PaperData) -> None:
    exhibit = figure_7(hand_data)
    found = exhibit.frame[exhibit.frame["row"] == "correlation"].iloc[0]
    expected = pearsonr([0.1, 0.5, 0.8], [0, 1 / 3, 2 / 3]).statistic
    assert found["pearson"] == pytest.approx(expected, rel=1e-9)
    # Four panels of three rates; three agreeing problems in each of two data sets.
    assert (found["num_cells"], found["num_problems"], found["interval"]) == (12, 6, "bootstrap")
    assert found["pearson_low"] < found["pearson"]
    assert exhibit.pictures[0].caption.startswith(f"r = {expected:.3f} (95% interval ")
    assert len(list(parsed(exhibit.pictures[0]).iter(CIRCLE))) == 6  # the other data set has squares


def test_sums_by_problem_give_the_figures_of_the_cells(hand_data: PaperData) -> None:
    points = points_of(hand_data)
    found = correlation_of(points)
    values = [(p.cell.efficacy.value, p.cell.ff_hard_any.value) for p in points]
    assert found.value == pytest.approx(float(np.corrcoef(np.transpose(values))[0, 1]), rel=1e-12)
    assert [p.cell.efficacy.value for p in points[:3]] == pytest.approx(list(EFFICACY.values()))


@pytest.mark.parametrize(
    ("make", "parts"), [(figure_9, ["arc_challenge", "pets"]), (figure_10, ["LLaMA-8B", "own"])], ids=["9", "10"]
)
def test_figures_9_and_10_part_the_cells(
    make: Callable[[PaperData], Exhibit], parts: list[str], hand_data: PaperData
) -> None:
    exhibit = make(hand_data)
    found = exhibit.frame[exhibit.frame["row"] == "correlation"]
    assert list(found["points"]) == parts
    assert set(found["num_cells"]) == {6}
    assert [picture.caption.partition(":")[0] for picture in exhibit.pictures] == [*parts, LEGEND.partition(":")[0]]
    assert exhibit.grid is not None
    assert [row[0].text for row in exhibit.grid.rows] == parts
    assert any(note.startswith("Mean of the 2 correlations: ") for note in exhibit.notes)


def test_fewer_than_three_cells_have_no_correlation(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = load_paper([make_run(tmp_path, models=["own"], data_sets=["pets"], rates=[LOW, MIDDLE])])
    exhibit = figure_7(data)
    found = exhibit.frame[exhibit.frame["row"] == "correlation"].iloc[0]
    assert pd.isna(found["pearson"])
    assert found["reason"] == "2 points; a correlation needs 3"
    assert exhibit.pictures[0].caption == "r undefined: 2 points; a correlation needs 3 (2 cells)"
    (row,) = (figure_9(data).grid or pytest.fail("no table")).rows
    assert row[1].text == "undefined: 2 points; a correlation needs 3"


def test_lora_is_left_out_of_the_correlation_where_there_is_full_ff2(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    both = load_paper([make_run(tmp_path, models=["own"], data_sets=["pets"], methods=METHODS)])
    assert {point.cell.method for point in points_of(both)} == {"ff2"}
    alone = load_paper([make_run(tmp_path, "lora", models=["own"], data_sets=["pets"], methods=METHODS[1:])])
    assert [point.cell.lora_rank for point in points_of(alone)] == [8, 8, 8, 128, 128, 128]


def test_figures_of_a_run_without_rates_say_so(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = load_paper([make_run(tmp_path, rates=[])])
    for make in (figure_6, figure_7, figure_9, figure_10):
        assert make(data).missing == NO_CELL
    for make in (figure_3, figure_4):
        assert "fairwitness sweep" in str(make(data).missing)


def test_a_title_is_escaped_and_every_shape_is_a_mark() -> None:
    for shape in ("circle", "square", "diamond", "triangle", "down", "cross"):
        drawn = ElementTree.fromstring(mark(5, 5, Look("#112233", shape, 4), filled=False, title="<a> & b"))
        assert drawn[0].text == "<a> & b"
        assert drawn.attrib["stroke"] == "#112233"
    many = {f"<model {number}>": Look("#112233", "circle", 4) for number in range(12)}
    assert "&lt;model 11&gt;" in legend(many)
