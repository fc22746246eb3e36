"""Tables 2 and 4: baselines beside ff-hard, from rows whose figures are known by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairwitness.report.paper.data import PaperData, load_paper
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.followup_tables import NO_MISTAKE as NOT_MEASURED
from fairwitness.report.paper.followup_tables import NO_PARAPHRASE as NO_PARAPHRASE
from fairwitness.report.paper.followup_tables import table_2, table_4
from tests.unit.report.paper.conftest import STARTED, scope_key

MODEL, DATA_SET = "LLaMA-8B", "arc_challenge"
FLIPS: Mapping[str, Sequence[tuple[bool, bool]]] = {
    # Per problem p0 to p3, whether the change of the first and of the second step changes the answer.
    "add_mistake": [(True, False), (False, True), (False, False), (True, True)],
    "paraphrase": [(False, False), (False, False), (True, False), (True, False)],
}


def _rows(baseline: str, key: str) -> list[dict[str, Any]]:
    scope = scope_key(MODEL, DATA_SET)
    return [
        {
            "key": f"{key}-{number}-{step}",
            "baseline": baseline,
            "baseline_key": key,
            "scope_key": scope,
            "cot_key": f"cot-{scope}-{number}",
            "model": MODEL,
            "data_set": DATA_SET,
            "problem_id": f"p{number}",
            "problem_key": f"problem-{DATA_SET}-{number}",
            "cot_step_index": step,
            "source": "rule",
            "flipped": flipped,
            "status": "ok",
        }
        for number, flips in enumerate(FLIPS[baseline])
        for step, flipped in enumerate(flips)
    ]


def _job(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "key": "run-baselines",
        "name": "hand",
        "job": "fur_baselines",
        "is_followup": True,
        "created_at": STARTED + timedelta(hours=1),
        "config_json": json.dumps({"baselines": list(settings.values())}),
        "cell_keys": list(settings),
        "code_revision": "c",
        "status": "done",
    }


def _data(make_run: Callable[..., Path], folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> PaperData:
    rows = [row for key, one in settings.items() for row in _rows(one["kind"], key)]
    tables = {"runs": [_job(settings)], "baselines": rows}
    return load_paper([make_run(folder, models=[MODEL], data_sets=[DATA_SET, "pets"], tables=tables)])


def _texts(exhibit: Exhibit) -> list[tuple[str, ...]]:
    assert exhibit.grid is not None
    return [tuple(cell.text for cell in row) for row in exhibit.grid.rows]


def test_table_2_and_table_4_by_hand(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = _data(make_run, tmp_path, {"b1": {"kind": "add_mistake"}, "b2": {"kind": "paraphrase"}})
    exhibit = table_2(data)
    (row,) = exhibit.frame.to_dict("records")
    # p3 disagrees; of the other three unlearning changes p0, a mistake p0 and p1.
    assert (row["ff_hard_numerator"], row["ff_hard_denominator"]) == (1, 3)
    assert (row["add_mistake_numerator"], row["add_mistake_denominator"]) == (2, 3)
    assert (row["same_numerator"], row["ff_hard_published"], row["add_mistake_published"]) == (2, "39.6", "16.2")
    assert _texts(exhibit) == [(MODEL, "33.3", "66.7")]
    (line,) = exhibit.grid.rows if exhibit.grid else ()
    assert [cell.lines[-1] for cell in line[1:]] == ["paper 39.6", "paper 16.2"]
    other = table_4(data)
    (row,) = other.frame.to_dict("records")
    assert (row["paraphrase_numerator"], row["paraphrase_denominator"]) == (1, 3)
    assert _texts(other) == [(MODEL, "33.3")]


def test_the_same_baseline_with_other_settings_has_a_line_of_its_own(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {f"b{rest}": {"kind": "add_mistake", "rest": rest} for rest in ("own", "continued")}
    exhibit = table_2(_data(make_run, tmp_path, settings))
    assert [texts[0] for texts in _texts(exhibit)] == [f"{MODEL} (rest: own)", f"{MODEL} (rest: continued)"]
    assert list(exhibit.frame["settings"]) == ["rest: own", "rest: continued"]


@pytest.mark.parametrize(("make", "why"), [(table_2, NOT_MEASURED), (table_4, NO_PARAPHRASE)])
def test_without_baselines_the_job_is_named(
    make: Callable[[PaperData], Exhibit], why: str, hand_data: PaperData
) -> None:
    assert make(hand_data).missing == why
    assert "fairwitness baselines" in why
