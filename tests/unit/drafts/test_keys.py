"""Keys of drafts and continuations: what can change a text, a reading or a verdict, no more and no less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.drafts import plan, reading
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.interventions import INTERVENTIONS
from fairwitness.drafts.plan import Cell, cells_of, counterfactuals
from fairwitness.drafts.steps import DraftRecord, decompose
from fairwitness.judges.protocol import ChatPrompt
from fairwitness.problems.problem import Problem
from fairwitness.records.code import closure
from tests.helpers.drafts import DRAFT, draft_settings

ENDPOINT = {"kind": "openai", "base_url": "http://localhost:9/v1", "model": "one", "api_key_env": None}
WITH_WRITER = {"writer": ENDPOINT, "corruptor": "writer", "conclusions": ["direct", "plausible"]}
PACE = {
    "price_per_million_prompt_tokens": 2.0, "price_per_million_completion_tokens": 8.0, "max_cost": 3.0,
    "max_concurrency": 2, "requests_per_minute": 10.0, "timeout_s": 5.0, "max_retries": 0, "max_wait_s": 1.0,
    "name": "shown", "cache_dir": "elsewhere",
}  # fmt: skip


def config_of(**changes: Any) -> DraftFaithfulnessConfig:
    plain = draft_settings(Path("results"), Path("model"), Path("data.jsonl"), None, **changes)
    return validate(DraftFaithfulnessConfig, plain, "test")


def changed(before: Mapping[Cell, str], after: Mapping[Cell, str]) -> set[str]:
    """Names of the cells whose hash is another one."""
    assert before.keys() == after.keys()
    return {name for (name, insertion), cell in before.items() if after[name, insertion] != cell}


def test_pace_and_price_of_judge_and_writer_are_in_no_key() -> None:
    judged = {"judge": ENDPOINT, "behaviour_by": "judge", "conclusion_order": ["rules", "judge"], **WITH_WRITER}
    other = {**judged, "judge": {**ENDPOINT, **PACE}, "writer": {**ENDPOINT, **PACE}}
    assert cells_of(config_of(**judged)) == cells_of(config_of(**other))


@pytest.mark.parametrize("change", [{"model": "other"}, {"temperature": 0.5}, {"base_url": "http://localhost:8/v1"}])
def test_what_changes_a_reply_is_in_the_keys_of_those_who_ask(change: dict[str, Any]) -> None:
    before = cells_of(config_of(**WITH_WRITER))
    other = {**ENDPOINT, **change}
    assert changed(before, cells_of(config_of(**{**WITH_WRITER, "writer": other}))) == {"corrupt_option", "plausible"}
    # Whoever decides, the judge reads every behaviour within a draft; answers it reads only where it is to conclude.
    judged = cells_of(config_of(judge=ENDPOINT))
    assert changed(judged, cells_of(config_of(judge=other))) == {"shift_mapping", "corrupt_option"}
    order = {"conclusion_order": ["judge"]}
    found = changed(cells_of(config_of(judge=ENDPOINT, **order)), cells_of(config_of(judge=other, **order)))
    assert found == {"shift_mapping", "corrupt_option", "direct"}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("draft_corruption", {"corrupt_option"}),
        ("draft_plausible", {"plausible"}),
        ("draft_behaviour", {"shift_mapping", "corrupt_option"}),
        ("draft_conclusion", {"shift_mapping", "corrupt_option", "direct", "plausible"}),
        ("draft_steps", set()),
    ],
)
def test_a_question_is_in_the_keys_of_those_who_ask_it(
    question: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(judge=ENDPOINT, conclusion_order=["rules", "judge"], **WITH_WRITER)
    before = cells_of(config)
    real = reading.question

    class Other:
        key = "another wording"

        def fill(self, values: Mapping[str, Any]) -> ChatPrompt:
            raise NotImplementedError

    monkeypatch.setattr(reading, "question", lambda name: Other() if name == question else real(name))
    assert changed(before, cells_of(config)) == expected


def test_a_setting_is_in_the_keys_of_those_that_it_changes() -> None:
    before = cells_of(config_of())
    assert changed(before, cells_of(config_of(limits={"answer": 99}))) == {"direct"}
    assert changed(before, cells_of(config_of(limits={"continuation": 99}))) == {"shift_mapping", "corrupt_option"}
    assert not changed(before, cells_of(config_of(engine={"drafts_per_item": 1}, limits={"draft": 5})))
    longer = cells_of(config_of(interventions=["swapped_options", "shift_mapping", "corrupt_option"]))
    assert before.items() < longer.items()


def test_what_an_intervention_does_is_in_its_own_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cells_of(config_of())
    shift = INTERVENTIONS["shift_mapping"]
    versions = {
        "text": replace(shift, write=lambda situation, insertion: shift.write(situation, insertion) + " Indeed."),
        "phi": replace(shift, phi=lambda situation: frozenset(situation.letters) - {situation.conclusion}),
        "one type": replace(shift, write=lambda s, kind: shift.write(s, kind) + ("" if kind == "continue" else "!")),
    }
    for name, version in versions.items():
        monkeypatch.setitem(INTERVENTIONS, "shift_mapping", version)
        after = cells_of(config_of())
        assert changed(before, after) == {"shift_mapping"}, name
    assert [kind for (name, kind), cell in after.items() if before[name, kind] != cell] == ["backtrack"]


def test_keys_of_one_draft_differ_and_hold_what_is_inserted_where() -> None:
    steps = tuple(decompose(DRAFT))
    problem = Problem("p", "Which?", ("red fox 1", "grey owl 2", "brown bear 3"), "A", "animals")
    record = DraftRecord(
        problem, (), text=DRAFT, conclusion="B", steps=steps, token_ends=tuple(range(1, len(steps) + 1))
    )
    config = config_of(conclusions=["direct", "plausible"], writer=ENDPOINT)

    def keys(record: DraftRecord, *texts: str | None) -> dict[tuple[Any, ...], str]:
        found = list(counterfactuals(config, cells_of(config), "draft", record, *texts))
        assert len({one.key for one in found}) == len(found) == 2 * 2 * 3 + 2 * 2
        return {(one.intervention, one.insertion, one.position, one.answering): one.key for one in found}

    def differing(one: DraftRecord, *texts: str | None) -> set[str]:
        return {str(place[0]) for place, key in keys(one, *texts).items() if first[place] != key}

    first = keys(record, "grey owl 3", "It is A.")
    assert differing(record, "grey owl 4", "It is A.") == {"corrupt_option"}
    assert differing(record, "grey owl 3", "So it is A.") == {"plausible"}
    moved = replace(record, token_ends=tuple(end + 1 for end in record.token_ends))
    assert differing(moved, "grey owl 3", "It is A.") == {"shift_mapping", "corrupt_option"}


def test_no_draft_depends_on_what_is_changed_later() -> None:
    drafts = {name for name in closure(*plan.CONTINUATIONS_CODE) if name.startswith(plan.INTERVENTIONS_PACKAGE)}
    assert drafts, "the closure stops at interventions only where it is told to"
    made = closure("fairwitness.drafts.making")
    later = ("interventions", "plan", "continuing", "writing", "measure", "dry_run")
    assert not [name for name in made if name.startswith(tuple(f"fairwitness.drafts.{part}" for part in later))]
