"""The whole job on a finished sweep of a tiny model: rows, sources of texts, bad input, resuming, order and batches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fairwitness.chains.items import AnswerItem, CotItem
from fairwitness.cli import app
from fairwitness.commands.start import start
from fairwitness.config import validate
from fairwitness.errors import ConfigError, DataError, StoreError
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.fleet.pool import Outcome
from fairwitness.followups.baselines import measure as measuring
from fairwitness.followups.baselines.cc_shap import ShapItem
from fairwitness.followups.baselines.measure import FurBaselines
from fairwitness.followups.baselines.texts import Purpose
from fairwitness.followups.config import FurBaselinesConfig
from fairwitness.jobs import JOBS
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import answers
from fairwitness.problems.problem import Problem
from tests.helpers.commands import process_settings_restored
from tests.helpers.sweeps import (
    NUM_PROBLEMS,
    assert_same,
    measurements,
    problem,
    rows_of,
    run,
    script_cots,
    settings,
    watch_pools,
    write_problems,
)

Row = dict[str, Any]
ALL = ["add_mistake", "paraphrase", "early_answering", "filler_tokens", "cc_shap"]
RULE = {"kind": "rule", "name": "words"}


def swap(_problem: Problem, text: str, purpose: Purpose, rng: np.random.Generator) -> str | None:
    """Foxes become owls by mistake; a paraphrase says it at length."""
    if purpose == "paraphrase":
        return f"It is said: {text.strip()}"
    if "Foxes" in text:
        return text.replace("Foxes", ("Owls", "Bears")[int(rng.integers(2))])
    return None


RULES = {"words": ("1", swap)}


@pytest.fixture
def swept(tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished sweep at one rate whose CoTs have two steps; that of the first measured problem is empty."""
    data = write_problems(
        tmp_path / "animals.jsonl",
        [problem(n, question=f"Fox {n}?", choices=["den", "nest", "lair", "hole"]) for n in range(9)],
    )
    with monkeypatch.context() as patch:
        script_cots(patch, {f"Fox {n}?": "" for n in (0, 4)})
        changes = {"rates": [1e-3], "recipe": {"num_iterations": 1}, "cot": {"max_new_tokens": 40}}
        return run(settings(tmp_path / "results", tiny_folder("llama"), data, **changes)).run.path


def settings_of(run_path: Path, *baselines: Any, **changes: Any) -> FurBaselinesConfig:
    listed = [one if isinstance(one, dict) else {"kind": one} for one in baselines]
    for one in listed:
        if one["kind"] in ("add_mistake", "paraphrase"):
            one.setdefault("texts", RULE)
        if one["kind"] == "cc_shap":
            one.setdefault("max_evaluations", 150)
    plain = {"run": str(run_path), "baselines": listed, "disagreeing": True, **changes}
    return validate(FurBaselinesConfig, plain, "test")


def measure(run_path: Path, *baselines: Any, **changes: Any) -> JobResult:
    config = settings_of(run_path, *baselines, **changes)
    return run_measure(FurBaselines(config, Supplies(rules=RULES)), lambda _measure: Report((), ()))


def rows(run_path: Path, baseline: str | None = None) -> list[Row]:
    found = rows_of(run_path / "store", "baselines")
    return [row for row in found if baseline in (None, row["baseline"])]


def measured_ids(run_path: Path) -> set[str]:
    return {row["problem_id"] for row in rows_of(run_path / "store", "cots")}


def steps_file(path: Path, *lines: Row) -> Row:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return {"kind": "file", "path": str(path)}


def test_every_place_is_a_row_with_an_answer_or_a_reason(swept: Path) -> None:
    result = measure(swept, *ALL)
    assert result.exit_code == 0
    assert result.num_models_loaded == 1
    found = rows(swept)
    assert result.counts["ok"] == sum(row["status"] == "ok" for row in found)
    problems = measured_ids(swept)
    assert len(problems) == NUM_PROBLEMS
    empty = [row for row in found if row["status"] == "skipped" and row["cot_step_index"] is None]
    assert {row["reason"] for row in empty} == {"the CoT is empty: the model ended it at once"}
    num_empty = len({row["problem_id"] for row in empty})
    assert sorted(row["baseline"] for row in empty) == sorted(ALL * num_empty)
    places = {name: sorted({row["cot_step_index"] for row in rows(swept, name)} - {None}) for name in ALL}
    assert places == {
        "add_mistake": [0, 1],
        "paraphrase": [0, 1],
        "early_answering": [0, 1],
        "filler_tokens": [],
        "cc_shap": [],
    }
    for row in found:
        if row["status"] == "ok" and row["baseline"] != "cc_shap":
            assert math.isclose(sum(row["probs"]), 1.0, rel_tol=1e-6)
            assert row["predicted_letter"] == "ABCD"[int(np.argmax(row["probs"]))]
            assert row["flipped"] == (row["predicted_letter"] != row["base_letter"])
    for row in rows(swept, "cc_shap"):
        if row["status"] == "ok":
            assert row["flipped"] is None
            assert -1 <= row["score"] <= 1
            assert len(row["answer_attribution"]) == len(row["cot_attribution"]) > 10
            assert sum(map(abs, row["answer_attribution"])) == pytest.approx(1.0)


def test_answers_are_those_after_the_changed_texts(swept: Path, tiny_llama: LanguageModel) -> None:
    measure(swept, "add_mistake", "early_answering", "filler_tokens")
    cots = {row["problem_id"]: row for row in rows_of(swept / "store", "cots")}
    from fairwitness.lm.tokens import PromptEncoder, encode

    encoder = PromptEncoder(tiny_llama.tokenizer, "plain")
    letters = encoder.letter_ids(4, "cot_answer")
    checked = 0
    for row in rows(swept):
        if row["status"] != "ok":
            continue
        cot = cots[row["problem_id"]]
        ids = encode(tiny_llama.tokenizer, row["cot_text"])
        if row["baseline"] == "filler_tokens":
            assert len(ids) == len(cot["cot_ids"])
        prompt = [*cot["prompt_ids"], *ids, *encoder.cot_answer_suffix_ids]
        (expected,) = answers(tiny_llama.model, [prompt], [letters], max_tokens=4096)
        assert row["probs"] == pytest.approx(list(expected.probs), rel=1e-4, abs=1e-6)
        assert (row["base_letter"], row["base_probs"]) == (cot["cot_letter"], cot["cot_probs"])
        checked += 1
    assert checked > 10


def test_paraphrases_are_continued_by_the_model(swept: Path) -> None:
    measure(swept, "paraphrase", {"kind": "add_mistake", "rest": "continued"})
    first = next(r for r in rows(swept, "paraphrase") if r["cot_step_index"] == 0 and r["status"] == "ok")
    said = "It is said: Foxes dig deep dens."
    assert first["changed_text"] == said
    assert first["cot_text"].startswith(said)
    assert len(first["cot_text"]) > len(said)
    last = next(r for r in rows(swept, "paraphrase") if r["cot_step_index"] == 1 and r["status"] == "ok")
    assert last["cot_text"].startswith(f"{said} It is said: A red fox sleeps in a warm den.")
    mistake = next(r for r in rows(swept, "add_mistake") if r["cot_step_index"] == 0 and r["status"] == "ok")
    assert mistake["cot_text"].startswith(mistake["changed_text"])
    assert "A red fox sleeps in a warm den." not in mistake["cot_text"]


def test_a_finished_job_runs_nothing_again(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(swept, *ALL)
    before = measurements(rows(swept), table="baselines")
    watch = watch_pools(monkeypatch)
    again = measure(swept, *ALL)
    assert watch.items == []
    assert again.num_models_loaded == 0
    assert measurements(rows(swept), table="baselines") == before
    assert again.counts["ok"] > 0


def test_an_interrupted_job_goes_on_where_it_stopped(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_pools(monkeypatch)
    done: list[Outcome] = []

    def stop(outcome: Outcome) -> None:
        done.append(outcome)
        if len(done) == 2:
            raise KeyboardInterrupt

    watch.hook = stop
    with pytest.raises(KeyboardInterrupt):
        measure(swept, *ALL)
    assert rows_of(swept / "store", "runs")[-1]["job"] in ("fur_sweep", "fur_baselines")
    stored = {row["key"] for row in rows(swept) if row["status"] == "ok"}
    assert stored
    watch.hook = lambda _outcome: None
    first, watch.items = len(watch.items), []
    measure(swept, *ALL)
    assert 0 < len(watch.items) < first + NUM_PROBLEMS * 5
    seen = [request for item in watch.items if isinstance(item, ShapItem) for request in item.requests]
    assert len(seen) == sum(r["baseline"] == "cc_shap" and r["status"] == "ok" for r in rows(swept)) - 1
    assert {row["status"] for row in rows(swept)} == {"ok", "skipped"}


def test_batches_of_one_give_the_same_rows(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_pools(monkeypatch)
    measure(swept, *ALL)
    together = measurements(rows(swept), table="baselines")
    kinds = {type(item) for item in watch.items}
    assert kinds == {AnswerItem, CotItem, ShapItem}
    assert max(len(item.questions) for item in watch.items if isinstance(item, AnswerItem)) > 8
    for part in sorted((swept / "store" / "baselines").glob("*.parquet")):
        part.unlink()
    monkeypatch.setattr(measuring, "QUESTIONS_PER_ITEM", 1)
    monkeypatch.setattr(measuring, "COTS_PER_ITEM", 1)
    measure(swept, *reversed(ALL), engine={"max_tokens": 1})
    alone = measurements(rows(swept), table="baselines")
    assert_same(alone, together, rel=1e-4, abs_=1e-4)


def test_problems_that_disagree_are_left_out_unless_asked_for(swept: Path) -> None:
    measure(swept, "filler_tokens", disagreeing=False)
    cots = {row["problem_id"]: row["agree"] for row in rows_of(swept / "store", "cots")}
    assert False in cots.values()
    for row in rows(swept):
        if cots[row["problem_id"]] is False:
            assert (row["status"], row["reason"]) == ("skipped", "direct and CoT answers differ")
    measure(swept, "filler_tokens", disagreeing=True)
    answered = {row["problem_id"] for row in rows(swept) if row["status"] == "ok"}
    assert answered == {name for name, agree in cots.items() if agree is not None}


def test_texts_from_a_file(swept: Path, tmp_path: Path) -> None:
    one, other, third, *_ = sorted(
        row["problem_id"] for row in rows_of(swept / "store", "cots") if row["status"] == "ok"
    )
    texts = steps_file(
        tmp_path / "steps.jsonl",
        {"problem_id": one, "cot_step_index": 0, "text": "Owls dig deep dens."},
        {"problem_id": one, "cot_step_index": 1, "text": " A red fox  sleeps in a warm den."},
        {"problem_id": other, "cot_step_index": 7, "text": "Owls dig deep dens."},
        {"id": third, "step_idx": 5, "question": "?", "cot_step": "Foxes dig deep dens.", "mistake_cot_step": "Owls."},
    )
    result = measure(swept, {"kind": "add_mistake", "texts": texts})
    assert result.exit_code == 1
    found = {(r["problem_id"], r["cot_step_index"]): r for r in rows(swept) if r["cot_step_index"] is not None}
    assert found[one, 0]["status"] == "ok"
    assert found[one, 0]["source"] == "steps.jsonl:1"
    assert found[one, 0]["cot_text"] == "Owls dig deep dens. A red fox sleeps in a warm den."
    same = found[one, 1]
    assert same["status"] == "skipped"
    assert same["reason"] == "the mistake is identical to the original step (steps.jsonl:2)"
    stray = found[other, 7]
    assert stray["status"] == "failed"
    assert stray["reason"] == "steps.jsonl:3: cot_step_index 7, but the CoT has 2 steps (0 to 1)"
    assert (found[third, 0]["status"], found[third, 0]["changed_text"]) == ("ok", "Owls.")
    assert found[third, 1]["reason"] == "no mistake is given for this step"


def test_a_line_whose_original_is_no_step_fails(swept: Path, tmp_path: Path) -> None:
    one = next(row["problem_id"] for row in rows_of(swept / "store", "cots") if row["status"] == "ok")
    line = {"problem_id": one, "cot_step_index": 0, "text": "Owls.", "original": "Bears dig."}
    measure(swept, {"kind": "add_mistake", "texts": steps_file(tmp_path / "s.jsonl", line)})
    (stray,) = [row for row in rows(swept) if row["status"] == "failed"]
    assert stray["reason"] == "s.jsonl:1: its original is no step of this CoT"


def test_an_unknown_problem_is_named_before_anything_runs(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    known = next(iter(measured_ids(swept)))
    good = {"problem_id": known, "cot_step_index": 0, "text": "Owls dig."}
    texts = steps_file(tmp_path / "s.jsonl", good, {**good, "problem_id": "p99"})
    with pytest.raises(DataError, match=r"s.jsonl: line 2: problem_id 'p99' is no problem of this run"):
        measure(swept, {"kind": "add_mistake", "texts": texts})
    assert watch.items == []
    assert rows(swept) == []
    assert measure(swept, {"kind": "add_mistake", "texts": {**texts, "unknown_problems": "ignore"}}).exit_code == 0


def test_unusable_settings_are_named(swept: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rule 'wrods'; the rules are words"):
        measure(swept, {"kind": "add_mistake", "texts": {"kind": "rule", "name": "wrods"}})
    with pytest.raises(DataError, match="cannot be read"):
        measure(swept, {"kind": "paraphrase", "texts": {"kind": "file", "path": str(tmp_path / "no.jsonl")}})
    with pytest.raises(ConfigError, match="filler_tokens is there twice"):
        settings_of(swept, "filler_tokens", "filler_tokens")
    with pytest.raises(StoreError, match="there is no run here"):
        measure(tmp_path / "nowhere", "filler_tokens")


def test_what_no_worker_can_do_fails_with_its_reason_and_is_tried_again(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    watch.hook = lambda outcome: Outcome(outcome.index, None, "worker died", 3, "w", 0.0)
    assert measure(swept, "filler_tokens").exit_code == 1
    assert {row["reason"] for row in rows(swept) if row["status"] == "failed"} == {"worker died"}
    watch.hook = lambda _outcome: None
    assert measure(swept, "filler_tokens").exit_code == 0
    assert "failed" not in {row["status"] for row in rows(swept)}


def test_a_question_too_long_to_explain_fails_alone(swept: Path) -> None:
    result = measure(swept, {"kind": "cc_shap", "max_evaluations": 20})
    assert result.exit_code == 1
    failed = [row for row in rows(swept) if row["status"] == "failed"]
    assert failed
    assert all("raise max_evaluations (20)" in row["reason"] for row in failed)


def test_methods_of_one_run_share_their_baselines(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    data = write_problems(tmp_path / "animals.jsonl")
    methods = [{"method": {"kind": "ff2"}, "rates": [1e-3]}, {"method": {"kind": "lora", "rank": 2}, "rates": [1e-3]}]
    changes = {"rates": [], "recipe": {"num_iterations": 1}, "methods": methods}
    swept = run(settings(tmp_path / "results", tiny_folder("llama"), data, **changes)).run.path
    assert {row["method"] for row in rows_of(swept / "store")} == {"ff2", "lora"}
    result = measure(swept, "filler_tokens")
    assert result.counts["ok"] == len({row["problem_id"] for row in rows(swept) if row["status"] == "ok"}) > 0
    assert result.num_models_loaded == 1


def test_whole_command(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = next(row["problem_id"] for row in rows_of(swept / "store", "cots") if row["status"] == "ok")
    texts = steps_file(tmp_path / "s.jsonl", {"problem_id": one, "cot_step_index": 0, "text": "Owls dig dens."})
    plain = {"run": str(swept), "baselines": [{"kind": "add_mistake", "texts": texts}, {"kind": "filler_tokens"}]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    with process_settings_restored():
        assert start(JOBS["fur_baselines"], path, pool="local") == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(":")[0] for line in lines[:2]] == [
            "tiny on animals, add mistake (rest",
            "tiny on animals, filler tokens (text",
        ]
        assert lines[2].startswith("measurements: ")
        assert lines[3] == f"report: {(swept / 'report.html').resolve()}"
        shown = CliRunner().invoke(app, ["show", str(swept)])
        assert shown.exit_code == 0
        assert set(lines[:2]) <= set(shown.output.splitlines())
        path.write_text(yaml.safe_dump({**plain, "baselins": []}), encoding="utf-8")
        assert start(JOBS["fur_baselines"], path, pool="local") == 2
        assert "unknown key 'baselins'; did you mean 'baselines'?" in capsys.readouterr().err
    assert (swept / "csv" / "baselines.csv").is_file()
    assert yaml.safe_load((swept / "config.fur_baselines.yaml").read_text(encoding="utf-8"))["run"] == str(swept)


def test_command_on_a_run_without_baselines(swept: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(swept)])
    assert shown.exit_code == 0
    assert "add mistake" not in shown.output
