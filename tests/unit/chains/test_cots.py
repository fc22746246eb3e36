"""Base measurements on a real tiny model: every problem ends once, failures stay with their problem, rows read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairwitness.chains.client import engine_spec
from fairwitness.chains.cots import (
    CotRecord,
    answer_questions,
    cot_row,
    cot_step_rows,
    held_out_answers,
    question_of,
    record_from_rows,
    score_records,
    write_records,
)
from fairwitness.errors import ModelError
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import LocalPool
from fairwitness.fleet.pool import EngineSpec, Outcome, Pool
from fairwitness.fur.study import FurStudy
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.problems.problem import Problem
from fairwitness.records.store import Store
from tests.helpers.studies import make_study, measured, record
from tests.helpers.sweeps import TWO_STEPS, problem, script_cots


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> FurStudy:
    return make_study(tmp_path_factory.mktemp("study"), tiny_folder("llama"))


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    pool = LocalPool(PoolConfig(kind="local", num_threads=1))
    yield pool
    pool.close()


def long_problem(num_words: int) -> Problem:
    one = problem(99, question="fox " * num_words)
    return Problem("long", one["question"], tuple(one["choices"]), "A", "animals")


def written(study: FurStudy, pool: Pool, problems: Iterable[Problem]) -> dict[str, CotRecord]:
    records = [r for batch in write_records(study, pool, engine_spec(study), list(problems)) for r in batch]
    assert len({r.problem.problem_id for r in records}) == len(records)
    return {r.problem.problem_id: r for r in records}


def test_records_of_the_models_own_cots(study: FurStudy, pool: LocalPool, tiny_llama: LanguageModel) -> None:
    records = written(study, pool, measured(study))
    assert records.keys() == {one.problem_id for one in measured(study)}
    for one in records.values():
        assert one.status == "ok"
        assert 0 < len(one.cot_ids) <= study.config.cot.max_new_tokens
        assert one.text == tiny_llama.tokenizer.decode(list(one.cot_ids))
        assert "".join(step.text for step in one.steps) == one.text
        assert one.direct is not None
        assert math.isclose(sum(one.direct.probs), 1.0, rel_tol=1e-6)
        assert one.agree == (one.direct.index == one.given_cot.index if one.given_cot else None)
        assert set(one.base_logprobs) == {None}


def test_scores_are_mean_log_probabilities(study: FurStudy, pool: LocalPool, tiny_llama: LanguageModel) -> None:
    records = list(written(study, pool, measured(study)).values())
    scored = [r for batch in score_records(pool, engine_spec(study), records) for r in batch]
    assert len(scored) == len(records)
    for one in scored:
        ids = [*one.prompt_ids, *one.cot_ids]
        with torch.no_grad():
            logits = tiny_llama.model(input_ids=torch.tensor([ids])).logits[0].double()
        logprobs = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
        offset = len(one.prompt_ids) - 1
        for step, value in zip(one.steps, one.base_logprobs, strict=True):
            expected = logprobs[offset + step.token_start : offset + step.token_end].mean().item()
            assert value == pytest.approx(expected, rel=1e-5)


def test_question_longer_than_the_context_fails_alone(study: FurStudy, pool: LocalPool) -> None:
    one, *_ = measured(study)
    records = written(study, pool, [long_problem(700), one])
    assert records["long"].status == "failed"
    assert "the model's context holds 512" in str(records["long"].reason)
    assert records["long"].cot_ids == ()
    assert records[one.problem_id].status == "ok"


def test_cot_that_outgrows_the_context_fails_alone(study: FurStudy, pool: LocalPool) -> None:
    one, *_ = measured(study)
    long = next(p for n in range(700, 1, -1) if len(question_of(study, p := long_problem(n)).ids) < 505)
    records = written(study, pool, [long, one])
    assert records["long"].status == "failed"
    assert "context" in str(records["long"].reason)
    assert records[one.problem_id].status == "ok"


def test_empty_cot_is_skipped(study: FurStudy, pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, *_ = measured(study)
    script_cots(monkeypatch, {one.question: ""})
    records = written(study, pool, [one, other])
    skipped = records[one.problem_id]
    assert (skipped.status, skipped.reason) == ("skipped", "the CoT is empty: the model ended it at once")
    assert (skipped.agree, skipped.eligible) == (None, [])
    assert records[other.problem_id].text == TWO_STEPS
    assert [step.ineligible for step in records[other.problem_id].steps] == [None, None]


def test_held_out_answers_are_those_of_the_model(study: FurStudy, pool: LocalPool) -> None:
    held = held_out_answers(study, pool, engine_spec(study))
    problems = study.data.selection.held_out
    answers = answer_questions(study, pool, engine_spec(study), problems)
    assert [h.question for h in held] == [question_of(study, p) for p in problems]
    found = [answers[p.problem_id] for p in problems]
    assert [h.base_index for h in held] == [a.index for a in found if isinstance(a, LetterAnswer)]


def test_held_out_question_that_does_not_fit_is_left_out(study: FurStudy, pool: LocalPool) -> None:
    selection = study.data.selection
    longer = selection._replace(held_out=(*selection.held_out, long_problem(700)))
    changed = replace(study, data=replace(study.data, selection=longer))
    assert len(held_out_answers(changed, pool, engine_spec(study))) == len(selection.held_out)


def test_held_out_question_that_fits_is_never_left_out(study: FurStudy, pool: LocalPool) -> None:
    with pytest.raises(ModelError, match=r"held-out question \S+ was not answered \(worker died\)"):
        held_out_answers(study, BrokenPool(pool, answers=False), engine_spec(study))


class BrokenPool:
    """Answers questions and fails everything else."""

    num_builds = 0

    def __init__(self, inner: Pool, *, answers: bool) -> None:
        self._inner, self._answers = inner, answers

    def map(self, spec: EngineSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        for index, item in enumerate(items):
            if self._answers and type(item).__name__ == "AnswerItem":
                yield from (replace(o, index=index) for o in self._inner.map(spec, [item]))
            else:
                yield Outcome(index, None, "worker died", 3, "w", 0.0)

    def close(self) -> None:
        """Holds nothing."""


@pytest.mark.parametrize("answers", [True, False])
def test_what_no_worker_can_do_fails_with_its_reason(study: FurStudy, pool: LocalPool, answers: bool) -> None:
    records = written(study, BrokenPool(pool, answers=answers), measured(study))
    assert len(records) == len(measured(study))
    assert {(r.status, r.reason) for r in records.values()} == {("failed", "worker died")}
    assert all((r.direct is not None) == answers for r in records.values())


def test_scores_that_no_worker_can_give_fail_with_their_reason(study: FurStudy, pool: LocalPool) -> None:
    records = [record(study, one) for one in measured(study)]
    broken = BrokenPool(pool, answers=False)
    scored = [r for batch in score_records(broken, engine_spec(study), records) for r in batch]
    assert {(r.status, r.reason) for r in scored} == {("failed", "worker died")}
    assert len(scored) == len(records)


def test_stored_records_read_back_equal(study: FurStudy, pool: LocalPool, tmp_path: Path) -> None:
    records = list(written(study, pool, measured(study)).values())
    scored = [r for batch in score_records(pool, engine_spec(study), records) for r in batch]
    with Store(tmp_path) as store:
        for one in scored:
            store.append("cots", [cot_row(study, one)])
            store.append("cot_steps", cot_step_rows(study, one))
        rows = {row["problem_id"]: row for row in store.read("cots").to_pylist()}
        steps = store.read("cot_steps").to_pylist()
    for one in scored:
        name = one.problem.problem_id
        logprobs = {s["cot_step_index"]: s["base_logprob"] for s in steps if s["problem_id"] == name}
        assert record_from_rows(study, one.problem, rows[name], logprobs) == one


def test_no_records_give_no_batches(study: FurStudy, pool: LocalPool) -> None:
    assert [r for batch in score_records(pool, engine_spec(study), []) for r in batch] == []
    assert written(study, pool, []) == {}
