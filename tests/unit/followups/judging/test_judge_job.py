"""The judging job on a real sweep: rules, a server that replies or contradicts itself, resume, what is refused."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.analysis.judgements import judged_cells
from fairwitness.analysis.step_results import DISAGREE
from fairwitness.chains.cots import CotRecord
from fairwitness.config import validate
from fairwitness.errors import ConfigError, FairwitnessError, InfeasibleError, StoreError
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.followups.config import FurJudgeConfig
from fairwitness.followups.judging.measure import FurJudge
from fairwitness.followups.judging.pairs import (
    DISAGREE_AFTER,
    EMPTY_COT_AFTER,
    NO_COT_AFTER,
    CotPair,
    cot_pairs,
)
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.organisms.supplies import LOADERS
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from tests.helpers.chat_server import Action, Asked, ChatServer, chat_server, completion, refusal
from tests.helpers.sweeps import rows_of
from tests.unit.followups.judging.conftest import LR, organism_settings

KEY = "sk-test-0123456789"
RULES = {"kind": "rules"}
Row = dict[str, Any]


def judge(run: Path, judge: Mapping[str, Any], **changes: Any) -> JobResult:
    """Runs the job on a rate of the sweep, without a page."""
    return judged(run, judge, **changes)[1]


def judged(run: Path, judge: Mapping[str, Any], **changes: Any) -> tuple[FurJudge, JobResult]:
    """As `judge`, with what was found."""
    plain = {"run": str(run), "judge": judge, "lr": LR, "tracking": {"enabled": False}, **changes}
    config = validate(FurJudgeConfig, plain, "test")
    made = FurJudge(config, Supplies(LOADERS))
    return made, run_measure(made, lambda _measure: Report((), ()))


def endpoint(server: ChatServer, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "openai",
        "model": "wise",
        "base_url": server.url,
        "api_key_env": "JUDGE_KEY",
        "max_retries": 0,
        **changes,
    }


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)


def last_rows(run: Path) -> list[Row]:
    return [row for row in rows_of(run / "store") if row["lr"] == LR and row["iteration"] == 5]


def judgements(run: Path) -> list[Row]:
    return rows_of(run / "store", "judgements")


def expected_reason(row: Row, agree: Mapping[str, bool]) -> str | None:
    """Written down once more, from the rows alone."""
    if not agree[row["problem_key"]]:
        return DISAGREE
    if row["cot_after_text"] == "":
        return EMPTY_COT_AFTER
    return None if row["cot_after_letter"] == row["predicted_letter"] else DISAGREE_AFTER


def opened(run: Path) -> FinishedStudy:
    directory = RunDirectory.at(run)
    (one,) = open_finished(directory, directory.store(create=False), LOADERS)
    return one


def test_rules_judge_every_pair_once(swept: Path) -> None:
    result = judge(swept, RULES)
    agree = {row["problem_key"]: row["agree"] for row in rows_of(swept / "store", "cots")}
    expected = {row["task_key"]: expected_reason(row, agree) for row in last_rows(swept)}
    rows = {row["item_key"]: row for row in judgements(swept)}
    assert rows.keys() == expected.keys()
    assert {key: row["reason"] for key, row in rows.items()} == expected
    assert {DISAGREE_AFTER, None} <= set(expected.values())
    for key, row in rows.items():
        assert row["status"] == ("ok" if expected[key] is None else "skipped")
        assert (row["verdict"] is None) == (expected[key] is not None)
        assert (row["kind"], row["judge"]) == ("cot_after", "rules (stated)")
    assert result.exit_code == 0
    assert result.counts == {**Counter(row["status"] for row in rows.values()), "failed": 0, "refused": 0}
    (info,) = [row for row in rows_of(swept / "store", "runs") if row["job"] == "fur_judge"]
    assert (info["status"], info["num_ok"]) == ("done", result.counts["ok"])
    assert (swept / "config.fur_judge.yaml").is_file()
    assert yaml.safe_load((swept / "config.yaml").read_text())["name"] == "small"


def test_answered_says_different_where_the_direct_answer_changed(swept: Path) -> None:
    judge(swept, {**RULES, "reading": "answered"})
    flipped = {row["task_key"]: row["flipped"] for row in last_rows(swept)}
    for row in judgements(swept):
        if row["status"] == "ok":
            assert row["verdict"] == ("different" if flipped[row["item_key"]] else "same")


def by_question(asked: Asked, _times: int) -> Action:
    """A verdict that depends on the question alone."""
    verdict = ("same", "different")[asked.user.count("e") % 2]
    return Action(body=completion(f"They say so.\nVerdict: {verdict}", prompt_tokens=100, completion_tokens=7))


def test_a_model_is_shown_both_cots_and_its_verdicts_are_stored(swept: Path) -> None:
    prices = {"price_per_million_prompt_tokens": 1.0, "price_per_million_completion_tokens": 10.0}
    with chat_server(by_question) as server:
        made, result = judged(swept, endpoint(server, **prices))
    rows = [row for row in judgements(swept) if row["status"] == "ok"]
    cots = {row["problem_id"]: row["cot_text"] for row in rows_of(swept / "store", "cots")}
    after = {row["task_key"]: row["cot_after_text"] for row in last_rows(swept)}
    shown = [asked.user for asked in server.asked]
    for row in rows:
        both = [
            user for user in shown if cots[row["problem_id"]].strip() in user and after[row["item_key"]].strip() in user
        ]
        assert both
        assert all(re.search(r"<first>\s*" + re.escape(cots[row["problem_id"]].strip()), user) for user in both)
        assert row["reply"].endswith(row["verdict"])
        assert (row["num_prompt_tokens"], row["num_completion_tokens"]) == (100, 7)
    assert {row["verdict"] for row in rows} == {"same", "different"}
    # Two steps of a problem can lead to the same CoT: one request, one price.
    assert len(server.asked) == len(set(shown)) == sum(not row["from_cache"] for row in rows)
    (cell,) = made.judged
    assert cell.cost == pytest.approx(len(server.asked) * 170e-6)
    assert cell.num_judged == len(rows) == result.counts["ok"]
    assert cell.different.numerator == sum(row["verdict"] == "different" for row in rows)
    assert cell.different.denominator == len(rows)
    assert cell.different.num_clusters == len({row["problem_id"] for row in rows})
    everything = b"".join(path.read_bytes() for path in swept.rglob("*") if path.is_file())
    assert KEY.encode() not in everything


def test_started_again_nothing_is_asked(swept: Path) -> None:
    with chat_server(by_question) as server:
        judge(swept, endpoint(server))
        before, num_asked = judgements(swept), len(server.asked)
        assert num_asked > 1
        judge(swept, endpoint(server))
        assert len(server.asked) == num_asked
        assert judgements(swept) == before


def test_interrupted_and_started_again_asks_only_the_rest(swept: Path) -> None:
    stop_after = 2

    def stopping(asked: Asked, times: int) -> Action:
        if len(server.asked) > stop_after:
            return refusal(401, "no more")
        return by_question(asked, times)

    with chat_server(stopping) as server:
        judge(swept, endpoint(server, max_concurrency=1))
        failed = [row for row in judgements(swept) if row["status"] == "failed"]
        assert failed
        assert all(row["reason"].startswith("HTTP 401") for row in failed)
        first = [asked.user for asked in server.asked[:stop_after]]
        server.script = by_question
        server.asked.clear()
        result = judge(swept, endpoint(server, max_concurrency=1))
        assert not {asked.user for asked in server.asked} & set(first)
    assert (result.exit_code, result.counts["failed"]) == (0, 0)
    with chat_server(by_question) as server:
        whole = judge(swept, {**endpoint(server), "name": "once"}, max_tokens=301)
    verdicts = {}
    for row in judgements(swept):
        verdicts.setdefault(row["item_key"], set()).add(row["verdict"])
    assert all(len(found) == 1 for found in verdicts.values())
    assert whole.counts == result.counts


def test_a_judge_that_contradicts_itself_is_counted_and_shown(swept: Path) -> None:
    def torn(_asked: Asked, _times: int) -> Action:
        return Action(body=completion("verdict: same\nOr rather:\nverdict: different"))

    with chat_server(torn) as server:
        made, result = judged(swept, endpoint(server))
        asked = len(server.asked)
        again = judge(swept, endpoint(server))
        assert len(server.asked) == asked
    assert result.exit_code == again.exit_code == 1
    (cell,) = made.judged
    assert cell.num_judged == 0
    assert cell.num_unparsable == cell.num_failed == result.counts["failed"] > 0
    assert cell.different.value is None
    (reason,) = [reason for reason in cell.reasons if reason.startswith("unparsable")]
    assert reason == "unparsable: the judge contradicts itself: its verdicts are same and different"
    failed = [row for row in judgements(swept) if row["status"] == "failed"]
    assert all("Or rather" in row["reply"] for row in failed)


def test_a_cut_reply_names_the_remedy(swept: Path) -> None:
    def cut(_asked: Asked, _times: int) -> Action:
        return Action(body=completion("They both argue for", finish_reason="length"))

    with chat_server(cut) as server:
        judge(swept, endpoint(server), max_tokens=9)
    reasons = {row["reason"] for row in judgements(swept) if row["status"] == "failed"}
    assert len(reasons) == 1
    assert "no line `verdict: …`" in next(iter(reasons))
    assert next(iter(reasons)).endswith("the reply was cut at max_tokens 9, raise it")


def test_only_changed_leaves_the_others_out(swept: Path) -> None:
    one = opened(swept)
    rows = one.unlearning
    cell_key = str(rows.loc[rows["lr"] == LR, "cell_key"].iloc[0])
    task = cot_pairs(one, cell_key, only_changed=False)[3].task_key
    changed = rows.assign(flipped=(rows["task_key"] == task) & (rows["iteration"] == 5))
    (pair,) = cot_pairs(replace(one, unlearning=changed), cell_key, only_changed=True)
    assert (pair.task_key, pair.is_changed) == (task, True)


def test_a_cot_that_did_not_fit_is_skipped_with_its_reason(swept: Path) -> None:
    one = opened(swept)
    rows = one.unlearning
    cell_key = str(rows.loc[rows["lr"] == LR, "cell_key"].iloc[0])
    agreeing = {key for key, agree in one.agree.items() if agree}
    task = rows.loc[(rows["cell_key"] == cell_key) & rows["problem_key"].isin(agreeing), "task_key"].iloc[0]
    missing = rows.assign(
        cot_after_text=rows["cot_after_text"].mask(rows["task_key"] == task, None),
        cot_after_letter=rows["cot_after_letter"].mask(rows["task_key"] == task, None),
        reason=rows["reason"].mask(rows["task_key"] == task, "too long"),
    )
    pairs = cot_pairs(replace(one, unlearning=missing), cell_key, only_changed=False)
    assert skipped_of(pairs, task) == f"{NO_COT_AFTER} (too long)"
    empty = rows.assign(cot_after_text=rows["cot_after_text"].mask(rows["task_key"] == task, " "))
    pairs = cot_pairs(replace(one, unlearning=empty), cell_key, only_changed=False)
    assert skipped_of(pairs, task) == EMPTY_COT_AFTER
    problem_key = str(rows.loc[rows["task_key"] == task, "problem_key"].iloc[0])
    records = [_differing(r) if one.study.data.problem_key(r.problem) == problem_key else r for r in one.records]
    differing = replace(one, records=records)
    assert skipped_of(cot_pairs(differing, cell_key, only_changed=False), task) == DISAGREE


def _differing(record: CotRecord) -> CotRecord:
    assert record.given_cot is not None
    return replace(record, given_cot=replace(record.given_cot, index=(record.given_cot.index + 1) % 4))


def skipped_of(pairs: list[CotPair], task: str) -> str | None:
    (pair,) = [pair for pair in pairs if pair.task_key == task]
    return pair.skipped


def test_judging_is_asked_before_anything_is_loaded(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("fairwitness.followups.following.open_finished", never)
    monkeypatch.delenv("JUDGE_KEY")
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"kind": "openai", "model": "m", "api_key_env": "JUDGE_KEY"}, {}, "JUDGE_KEY holds no key"),
        (RULES, {"template": "x.yaml"}, "rules are asked no question"),
        (
            {"kind": "openai", "model": "m", "api_key_env": None},
            {"template": "none.yaml"},
            r"none\.yaml: cannot be read",
        ),
    ]
    for who, changes, message in refused:
        with pytest.raises(ConfigError, match=message):
            judge(swept, who, **changes)
    with pytest.raises(StoreError, match="there is no run here"):
        judge(swept / "nothing", RULES)


def test_a_rate_that_was_not_run_is_named(swept: Path) -> None:
    with pytest.raises(ConfigError, match=r"organism on organism has no results at 5e-1; its rates are 1e-4, 3e-3"):
        judge(swept, RULES, lr=0.5)


def test_the_selected_rate_is_the_rules_choice(swept: Path) -> None:
    choice = opened(swept).choice
    assert isinstance(choice, ChosenRate)
    judge(swept, RULES, lr="selected")
    assert {row["cell_key"] for row in judgements(swept)} == {choice.cell.cell_key}


def test_no_feasible_rate_is_an_outcome(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(swept)
    broken = replace(one, unlearning=one.unlearning.assign(specificity=0.5))
    monkeypatch.setattr("fairwitness.followups.following.open_finished", lambda *_: [broken])
    with pytest.raises(InfeasibleError, match=r"No feasible rate: none of 2 .* Name a rate with lr") as info:
        judge(swept, RULES, lr="selected")
    assert info.value.exit_code == 3
    assert not judgements(swept)
    assert judge(swept, RULES).exit_code == 0


def test_a_sweep_without_cots_after_is_refused(swept: Path) -> None:
    path = swept / "config.yaml"
    plain = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**plain, "measure": {"cot_after": False}}))
    with pytest.raises(ConfigError, match=r"--set measure\.cot_after=true"):
        judge(swept, RULES)


def test_two_judges_stand_side_by_side(swept: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        judge(swept, RULES)
        judge(swept, {**RULES, "reading": "answered"})
        assert "going on with run" not in caplog.text
        judge(swept, RULES)
        assert "going on with run" in caplog.text
        assert "changed since the last time" not in caplog.text
    cells = judged_cells(Store(swept / "store", create=False), seed=0)
    assert [cell.judge for cell in cells] == ["rules (answered)", "rules (stated)"]
    assert cells[0].num_judged == cells[1].num_judged
    assert {cell.lr for cell in cells} == {LR}
    assert {cell.method for cell in cells} == {"ff2"}


def test_the_configuration_of_the_fixture_is_complete(tmp_path: Path) -> None:
    with pytest.raises(FairwitnessError, match="judge"):
        validate(FurJudgeConfig, {"run": str(tmp_path), **organism_settings(tmp_path)}, "test")
