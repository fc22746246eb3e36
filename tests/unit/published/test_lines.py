"""Published lines: what is read, and each fault by its field; what the names of files tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import DataError
from fairwitness.problems.records import FieldError
from fairwitness.published.lines import SHAPES, JudgementLine, choice_texts, parse_line
from fairwitness.published.reading import origin_of, read_published
from tests.helpers.published import (
    JUDGEMENTS_NAME,
    judgement,
    measured,
    mistake,
    result,
    write_lines,
    write_mistakes,
    write_results,
)

RESULTS, MISTAKES, JUDGEMENTS, STUDY = SHAPES
BASE = measured([0.6, 0.2], -1.0, [0])


def test_the_names_of_files_tell_where_lines_are_from(tmp_path: Path) -> None:
    origin = origin_of(tmp_path / "sqa" / "Phi-3" / "npo_KL_sentencize_s=True_lr=0.0001_rs=7_pos=False_ff2=False.out")
    assert (origin.model, origin.data_set, origin.lr, origin.seed) == ("Phi-3", "strategyqa", 1e-4, 7)
    assert (origin.objective, origin.content_only, origin.method) == ("npo_kl", False, "all")
    judged = origin_of(tmp_path / "LLaMA-3_arc-challenge_NPO_KL_1e-05_judgements.jsonl")
    assert (judged.model, judged.data_set, judged.lr, judged.seed) == ("LLaMA-3-8B", "arc_challenge", 1e-5, None)
    assert judged.fits(origin_of(tmp_path / "arc-challenge" / "LLaMA-3" / "npo_KL_lr=1e-05_rs=1_pos=True_ff2=True.out"))
    assert not judged.fits(origin)


def test_a_name_that_tells_nothing_needs_help(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"theirs\.jsonl: the name tells no model and data set; give --model and"):
        origin_of(tmp_path / "theirs.jsonl")
    given = origin_of(tmp_path / "theirs.jsonl", model="mine", data_set="sports", lr=2e-5)
    assert (given.model, given.data_set, given.lr) == ("mine", "bbh_sports", 2e-5)
    with pytest.raises(DataError, match="gives 'fast' as the learning rate"):
        origin_of(tmp_path / "m_d_NPO_KL_fast_judgements.jsonl")


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"step_idx": 2}, "", "cot_step is not step 2 of segmented_cot"),
        ({"step_idx": -1}, "step_idx", "greater than or equal to 0"),
        ({"step_idx": "1"}, "step_idx", "valid integer"),
        ({"options": ["yes", "no"]}, "options", "option 'yes' is not written as 'A): text'"),
        ({"options": ["A): yes"]}, "options", "1 options; 2 to 26"),
        ({"correct": "C"}, "", "correct is 'C', not one of the 2 letters"),
        ({"initial_probs": [0.2, 0.6]}, "", "the prediction beside initial_probs is 0, but choice 1 is likelier"),
        ({"initial_probs": [0.6, 0.2, 0.1]}, "", "initial_probs has 3 numbers for 2 options"),
        ({"initial_probs": [0.0, 0.0]}, "", "initial_probs gives the letters no probability"),
        ({"initial_probs": [1.7, 0.2]}, "initial_probs.0", "less than or equal to 1"),
        ({"initial_probs": [float("nan"), 0.2]}, "initial_probs.0", "finite number"),
        ({"initial_cot": None}, "initial_cot", "valid string"),
        ({"unlearning_results": {}}, "", "must hold the iterations 0, 1, 2"),
        ({"unlearning_results": None}, "unlearning_results", "valid dictionary"),
        ({"unlearning_results": {"0": BASE, "2": BASE}}, "", "0, 1, 2"),
        ({"unlearning_results": {"0": BASE, "1": measured([0.6, 0.2], -1.0, [0, 1])}}, "",
         "unlearning_results.1.specificity_preds has another length"),
        ({"unlearning_results": {"0": {}, "1": {}}}, "unlearning_results.0.probs", "is missing"),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_its_field(changes: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(FieldError) as raised:
        parse_line(RESULTS, result(**changes))
    assert raised.value.field == field
    assert reason in raised.value.reason


def test_equally_likely_letters_may_be_predicted_either_way() -> None:
    line = result(initial_probs=[0.4, 0.4], prediction=1)
    assert parse_line(RESULTS, line).prediction == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Yes  \nBoth argue for A.", "same"), ("No\nThey differ.", "different"), ("**Unclear**\n", "unclear"),
        ("no.", "different"), ("Yes and no", None), ("No. They differ.", "different"), ("no\nYes", "different"),
        ("Not sure", None), ("- Yes", None), ("", None), ("The answer is Yes", None),
    ],
)  # fmt: skip
def test_the_first_line_of_a_reply_is_the_verdict(reply: str, verdict: str | None) -> None:
    line = parse_line(JUDGEMENTS, judgement(reply=reply))
    assert isinstance(line, JudgementLine)
    assert line.verdict == verdict


def test_a_judgement_knows_its_problem_and_step() -> None:
    line = parse_line(JUDGEMENTS, judgement(3, 12, instance_id="A_b_c?_12"))
    assert isinstance(line, JudgementLine)
    assert (line.problem, line.step_idx) == ("A_b_c?", 12)
    assert line.question_and_choices() == ("Do foxes dig, number 3?", ("yes", "no"))
    other = parse_line(JUDGEMENTS, judgement(prompt="Another wording."))
    assert isinstance(other, JudgementLine)
    assert other.question_and_choices() is None
    with pytest.raises(FieldError, match="instance_id"):
        parse_line(JUDGEMENTS, judgement(instance_id="no number"))


def test_letters_are_taken_off_choices_only_where_they_are_letters() -> None:
    assert choice_texts(["A): A) is it", "B) plain", "C): (C): c"]) == ("A) is it", "plain", "(C): c")


def test_bad_lines_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_results(
        tmp_path, [result(1), "{not json", result(2, step_idx=7), "", '["a list"]', mistake(3), result(4)]
    )
    found = read_published(path)
    assert [taken.line.id for taken in found.taken] == ["id1", "id4"]  # type: ignore[union-attr]
    assert [taken.record.line for taken in found.taken] == [1, 7]
    lines = [str(fault) for fault in found.refused]
    assert [line.partition(" ")[0] for line in lines] == [f"{path}:{number}" for number in (2, 3, 5, 6)]
    for line, reason in zip(
        lines, ("not valid JSON", "not step 7", "a JSON list", "'correct': is missing"), strict=True
    ):
        assert reason in line


def test_files_of_another_version_are_one_clear_error(tmp_path: Path) -> None:
    other = [{"question": "q", "unlearned": True, "score": 1}]
    cases = {
        "is no published file of a version known here: it has the fields question, unlearned, score": other,
        "no line can be read as results; another version? The first fault": [result(unlearning_results=[1, 2])],
        "is not valid JSON": ["<html>"],
        "is empty": [],
    }
    for message, lines in cases.items():
        path = write_results(tmp_path, lines)
        with pytest.raises(DataError) as raised:
            read_published(path)
        assert str(raised.value).startswith(str(path))
        assert message in str(raised.value)


def test_each_kind_is_told_by_its_fields(tmp_path: Path) -> None:
    assert read_published(write_results(tmp_path, [result()])).shape == "results"
    assert read_published(write_mistakes(tmp_path, [mistake()])).shape == "mistakes"
    assert read_published(write_lines(tmp_path / JUDGEMENTS_NAME, [judgement()])).shape == "judgements"
    study = tmp_path / "study.csv"
    header = (
        "ID,Question,options,segmented_cot,correct_answer,predicted_answer,target_step_idx,dp,flip,dataset,model,rating"
    )
    study.write_text(
        f"{header}\n1,q,A): a||B): b,One.||Two.,0,1,1,0.5,TRUE,sqa,LLaMA-3-8B,Mostly Supportive\n"
        "2,q,A): a||B): b,One.||Two.,0,1,2,0.5,TRUE,sqa,LLaMA-3-8B,Mostly Supportive\n"
        "3,q,A): a||B): b,One.||Two.,0,2,1,0.5,TRUE,sqa,LLaMA-3-8B,Mostly Supportive\n"
        "4,q,A): a||B): b,One.||Two.,0,1,1,1.5,TRUE,sqa,LLaMA-3-8B,Mostly Supportive\n"
        "5,q,A): a||B): b,One.||Two.,0,1,1,0.5,TRUE,sqa,LLaMA-3-8B,great\n"
    )
    found = read_published(study)
    assert (found.shape, len(found.taken)) == ("study", 1)
    assert [fault.line for fault in found.refused] == [3, 4, 5, 6]
    assert "'great' is no rating" in str(found.refused[-1])


def test_results_without_a_rate_ask_for_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "theirs.jsonl", [result()])
    with pytest.raises(DataError, match="no learning rate; give it with --lr"):
        read_published(path, model="m", data_set="d")
    assert read_published(path, model="m", data_set="d", lr=1e-5).taken[0].origin.lr == 1e-5
