"""Every table of drafts against rows that are counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from fairwitness.analysis import drafts as results
from fairwitness.analysis.draft_figures import compare_sources, differs, reader_agreements, relative_difference
from fairwitness.analysis.drafts import Rate, draft_counts, outcome_counts, without_verdict
from fairwitness.drafts.measure import draft_cells
from fairwitness.stats.bootstrap import Estimate
from tests.helpers.draft_runs import row

Key = tuple[str, ...]
CUT = {"status": "truncated", "is_faithful": None, "conclusion_letter": None}
UNKNOWN = {"is_faithful": None, "conclusion_letter": None, "reason": "no conclusion is stated"}


def draft(problem: str, **changes: str) -> dict[str, Any]:
    place = {"model": "m", "data_set": "d", "source": "own", "scope_key": "s"} | changes
    return {**place, "problem_id": problem, "key": f"draft-{place['model']}-{place['source']}-{problem}"}


def intra(problem: str, intervention: str, insertion: str, position: str, **changes: Any) -> dict[str, Any]:
    names = {"intervention": intervention, "insertion_type": insertion, "position": position}
    return row(draft(problem), **names, **changes)


def answer(problem: str, answering: str, letter: str | None, num_tokens: int = 4, **changes: Any) -> dict[str, Any]:
    place = {"dimension": "answer", "intervention": "direct", "insertion_type": None, "position": None}
    known = {"conclusion_letter": letter, "is_faithful": None if letter is None else letter == "C"}
    return row(draft(problem), **place, answering=answering, behaviour=None, num_tokens=num_tokens, **known | changes)


FOLLOWS = {"behaviour": "following"}
INTRA = [
    intra("p0", "shift_mapping", "continue", "initial"),
    intra("p0", "shift_mapping", "continue", "middle", **FOLLOWS, is_faithful=False),
    intra("p0", "shift_mapping", "continue", "end", **FOLLOWS, **UNKNOWN),
    intra("p1", "shift_mapping", "continue", "initial", **FOLLOWS, **CUT),
    intra("p1", "shift_mapping", "continue", "middle"),
    intra("p1", "shift_mapping", "backtrack", "initial", **FOLLOWS),
    intra("p0", "corrupt_option", "continue", "initial", **FOLLOWS),
    intra("p1", "corrupt_option", "continue", "initial", status="skipped", behaviour=None, is_faithful=None),
    intra("p0", "corrupt_option", "backtrack", "initial", is_faithful=False),
    intra("p0", "swapped_options", "backtrack", "initial", is_faithful=False),
]
ANSWERS = [
    answer("p0", "standard", "C", 10),
    answer("p0", "immediate", "C"),
    answer("p1", "standard", "B", 20),
    answer("p1", "immediate", "C"),
    answer("p2", "standard", None, 60, status="truncated"),
    answer("p2", "immediate", "C"),
    answer("p3", "standard", None, status="failed"),
    answer("p3", "immediate", "B"),
]
ROWS = pd.DataFrame(INTRA + ANSWERS)


def figures(rates: list[Rate], *columns: str) -> dict[Key, tuple[float | None, int, int, int]]:
    """Value, n, undefined and truncated by the columns that are asked for."""
    found = {}
    for rate in rates:
        value = rate.estimate.value and round(rate.estimate.value, 6)
        key = tuple(rate.group[name] for name in columns)
        found[key] = (value, rate.num_known, rate.num_undefined, rate.num_truncated)
    return found


def test_within_the_draft() -> None:
    by_step = ["intervention", "insertion_type"]
    assert figures(results.intra_rates(ROWS, by_step, seed=0), *by_step) == {
        ("shift_mapping", "continue"): (0.666667, 3, 2, 1),
        ("shift_mapping", "backtrack"): (1.0, 1, 0, 0),
        ("corrupt_option", "continue"): (1.0, 1, 0, 0),
        ("corrupt_option", "backtrack"): (0.0, 1, 0, 0),
        ("swapped_options", "backtrack"): (0.0, 1, 0, 0),
    }
    by_position = results.intra_rates(ROWS[ROWS["intervention"] == "shift_mapping"], ["position"], seed=0)
    assert figures(by_position, "position") == {
        ("initial",): (1.0, 2, 1, 1), ("middle",): (0.5, 2, 0, 0), ("end",): (None, 0, 1, 0),
    }  # fmt: skip
    by_behaviour = results.intra_rates(ROWS[ROWS["intervention"] == "shift_mapping"], ["behaviour"], seed=0)
    assert figures(by_behaviour, "behaviour") == {("correction",): (1.0, 2, 0, 0), ("following",): (0.5, 2, 2, 1)}


def test_the_average_is_that_of_the_papers_four_columns() -> None:
    (average,) = results.intra_average(ROWS, seed=0)
    assert average.estimate.value == pytest.approx((2 / 3 + 1 + 1 + 0) / 4)
    assert (average.num_known, average.num_undefined) == (6, 2)
    no_verdict = ROWS.assign(is_faithful=ROWS["is_faithful"].where(ROWS["intervention"] != "corrupt_option", None))
    (undefined,) = results.intra_average(no_verdict, seed=0)
    assert (undefined.estimate.value, undefined.estimate.reason) == (None, results.EMPTY_COLUMN)
    assert results.intra_average(ROWS[ROWS["intervention"] == "swapped_options"], seed=0) == []


def test_behaviours_and_the_figure_by_position() -> None:
    shares = figures(results.behaviour_shares(ROWS, ["insertion_type"], seed=0), "insertion_type")
    assert shares == {("continue",): (0.333333, 6, 0, 1), ("backtrack",): (0.666667, 3, 0, 0)}
    names = ("insertion_type", "behaviour", "position")
    found = figures(results.paper_rates(ROWS, seed=0), *names)
    assert found["backtrack", "correction", "initial"] == (0.0, 1, 0, 0)
    assert found["continue", "following", "initial"] == (1.0, 1, 1, 1)
    other = ROWS[ROWS["intervention"] == "swapped_options"]
    assert list(figures(results.paper_rates(other, seed=0), *names)) == [("backtrack", "correction", "initial")]


def test_from_the_draft_to_the_answer() -> None:
    assert figures(results.reliance_rates(ROWS, seed=0), "intervention") == {("direct",): (0.5, 2, 2, 0)}
    assert figures(results.consistency_rates(ROWS, seed=0), "answering") == {
        ("standard",): (0.5, 2, 1, 1), ("immediate",): (0.75, 4, 0, 0),
    }  # fmt: skip
    (average,) = results.consistency_average(ROWS, seed=0)
    assert average.estimate.value == pytest.approx((0.5 + 0.75) / 2)
    assert figures(results.answer_tokens(ROWS, seed=0), "intervention") == {("direct",): (30.0, 3, 0, 1)}


def test_the_order_of_rows_changes_nothing() -> None:
    turned = ROWS.iloc[::-1].reset_index(drop=True)
    for measure in (results.reliance_rates, results.consistency_average, results.intra_average):
        assert measure(ROWS, seed=3) == measure(turned, seed=3)


def test_own_beside_external_drafts() -> None:
    values = {"own": [1, 1, 1, 0], "r1": [1, 0], "qwen": [1, 1]}
    rows = [
        row(draft(f"p{number}", source=source), is_faithful=bool(value), position=f"{number}")
        for source, found in values.items()
        for number, value in enumerate(found)
    ]
    (one,) = compare_sources(pd.DataFrame(rows), lambda some: results.intra_rates(some, ["intervention"], seed=0))
    assert (one.own.estimate.value, one.own.num_known) == (0.75, 4)
    assert (one.external.estimate.value, one.external.num_known) == (0.75, 4)
    assert (one.relative, one.differs, "source" in one.group) == (0.0, False, False)
    only_own = pd.DataFrame(rows)[lambda frame: frame["source"] == "own"]
    assert compare_sources(only_own, lambda some: results.intra_rates(some, ["intervention"], seed=0)) == []


@pytest.mark.parametrize(
    ("own", "external", "relative", "marked"),
    [(0.56, 0.5, 0.12, True), (0.55, 0.5, 0.1, False), (0.44, 0.5, 0.12, True), (0.2, 0.0, None, True),
     (0.0, 0.0, None, False), (None, 0.5, None, None), (0.5, None, None, None)],
)  # fmt: skip
def test_a_difference_of_more_than_a_tenth_is_marked(
    own: float | None, external: float | None, relative: float | None, marked: bool | None
) -> None:
    pair = [Estimate(value, None, None, 0, 0, 0, None) for value in (own, external)]
    assert relative_difference(*pair) == (None if relative is None else pytest.approx(relative))
    assert differs(*pair) is marked


def test_judge_and_rules() -> None:
    pairs = [("correction", "correction"), ("following", "following"), ("following", "correction"),
             ("correction", "correction"), (None, "following"), ("following", None)]  # fmt: skip
    letters = [("A", "A"), ("B", "none"), ("none", "none"), ("B", "B"), ("A", None), ("C", "A")]
    rows = pd.DataFrame(
        row(draft(f"p{number}"), behaviour_rules=r, behaviour_judge=j, conclusion_rules=cr, conclusion_judge=cj)
        for number, ((r, j), (cr, cj)) in enumerate(zip(pairs, letters, strict=True))
    )
    cut = rows.iloc[[0]].assign(key="cut", status="truncated", conclusion_rules=None, conclusion_judge=None)
    failed = rows.iloc[[0]].assign(key="failed", status="failed", behaviour_judge="following")
    found = reader_agreements(pd.concat([rows, cut, failed]), judge="j", conclusion_order=["judge", "rules"], seed=0)
    behaviour, conclusion = (one.pair for one in found)
    assert (behaviour.kind, behaviour.judges, behaviour.agreement.num_items) == ("behaviour", ("j", "rules"), 5)
    assert (behaviour.agreement.observed, behaviour.num_only) == (0.8, (1, 1))
    known = [pair for pair in (*pairs, pairs[0]) if None not in pair]
    assert behaviour.agreement.kappa.value == pytest.approx(cohen_kappa_score(*map(list, zip(*known, strict=True))))
    read = [pair for pair in letters if None not in pair]
    assert (conclusion.agreement.num_items, conclusion.agreement.observed) == (5, 0.6)
    assert conclusion.agreement.kappa.value == pytest.approx(cohen_kappa_score(*map(list, zip(*read, strict=True))))
    rules_first = reader_agreements(rows, judge="j", conclusion_order=["rules", "judge"], seed=0)
    assert [one.pair.kind for one in rules_first] == ["behaviour"]


def test_counts_of_drafts() -> None:
    def one(problem: str, **changes: Any) -> dict[str, Any]:
        base = {"status": "ok", "irregular": [], "finish": "tag", "conclusion_letter": "B", "answer_letter": "B"}
        return draft(problem) | base | changes

    drafts = [
        one("p0"),
        one("p1", irregular=["doubled", "unclosed"], answer_letter="C"),
        one("p2", answer_letter=None),
        one("p3", irregular=["unclosed"], status="skipped", finish="length"),
        one("p4", irregular=None, status="failed", finish=None),
    ]
    (found,) = draft_counts(pd.DataFrame(drafts))
    assert (found.num_all, found.statuses) == (5, {"failed": 1, "ok": 3, "skipped": 1})
    assert (found.irregular, found.num_irregular) == ({"doubled": 1, "unclosed": 2}, 2)
    assert found.finishes == {"length": 1, "tag": 3}
    assert (found.num_other_answer, found.num_no_answer) == (1, 1)


def test_counts_of_outcomes_and_items_without_verdict() -> None:
    counts = outcome_counts(ROWS).set_index(["intervention", "insertion_type", "answering"])
    names = ["num_all", "faithful", "unfaithful", "undefined", "truncated", "skipped", "failed"]
    assert counts.loc[("shift_mapping", "continue", ""), names].tolist() == [5, 2, 1, 1, 1, 0, 0]
    assert counts.loc[("corrupt_option", "continue", ""), names].tolist() == [2, 1, 0, 0, 0, 1, 0]
    assert counts.loc[("direct", "", "standard"), names].tolist() == [4, 1, 1, 0, 1, 0, 1]
    assert counts["num_all"].sum() == len(ROWS)
    good = pd.DataFrame([draft("p0") | {"status": "ok", "reason": None}])
    problems = pd.DataFrame(
        [{"status": "refused", "reason": "no question", "data_set": "d", "problem_id": None, "key": "x"}]
    )
    lost = without_verdict(problems, good, ROWS)
    assert lost["table"].value_counts().to_dict() == {"continuations": 5, "reliance": 2, "problems": 1}
    pairs = lost[lost["table"] == "reliance"]
    assert set(zip(pairs["problem_id"], pairs["reason"], strict=True)) == {
        ("p2", "no standard answer"), ("p3", "no standard answer"),
    }  # fmt: skip
    nothing = without_verdict(
        problems.head(0), good, ROWS[ROWS["is_faithful"].notna() & (ROWS["dimension"] == "intra")]
    )
    assert len(nothing) == 0


def test_cells_for_mlflow_hold_the_figures_of_the_tables() -> None:
    cells = {tuple(cell.params.values())[3:]: cell.totals for cell in draft_cells(ROWS, seed=0)}
    shift, direct = cells["shift_mapping", "continue"], cells[("direct",)]
    assert (shift["faithful"], shift["faithful_n"], shift["num_undefined"]) == (pytest.approx(2 / 3), 3, 1)
    (rate,) = (r for r in results.intra_rates(ROWS, ["intervention", "insertion_type"], seed=0)
               if r.group["intervention"] == "shift_mapping" and r.group["insertion_type"] == "continue")  # fmt: skip
    assert (shift["faithful_low"], shift["faithful_high"]) == (rate.estimate.low, rate.estimate.high)
    assert (direct["reliance"], direct["consistency_standard"], direct["consistency_immediate"]) == (0.5, 0.5, 0.75)
    assert (direct["answer_tokens"], direct["answer_tokens_n"], direct["num_failed"]) == (30, 3, 1)
    assert all(np.isfinite(value) for totals in cells.values() for value in totals.values())
