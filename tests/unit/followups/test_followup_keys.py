"""Keys of what follows on a sweep: the code that measures a row, item by item, and what a change of it does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fairwitness.analysis.frames import Results
from fairwitness.cli import app
from fairwitness.config import validate
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.followups.baselines import measure as baselines
from fairwitness.followups.baselines.cc_shap import ShapItem
from fairwitness.followups.baselines.measure import CHANGES_CODE, SHAP_CODE, FurBaselines
from fairwitness.followups.baselines.texts import TEXTS_CODE
from fairwitness.followups.capability import plan
from fairwitness.followups.capability.measure import FurCapability
from fairwitness.followups.config import FurBaselinesConfig, FurCapabilityConfig, FurJudgeConfig
from fairwitness.followups.judging import pairs
from fairwitness.followups.judging.measure import FurJudge
from fairwitness.followups.judging.rules import RULES_CODE, rules_key
from fairwitness.judges.config import RulesConfig
from fairwitness.records.code import closure, code_revision
from tests.helpers.sweeps import problem, rows_of, run, script_cots, settings, watch_pools, write_problems

LR = 1e-3


@pytest.fixture
def swept(tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished sweep at one rate, with CoTs of two steps before unlearning and CoTs after it."""
    data = write_problems(tmp_path / "animals.jsonl", [problem(n, question=f"Fox {n}?") for n in range(9)])
    changes = {
        "rates": [LR],
        "recipe": {"num_iterations": 1},
        "cot": {"max_new_tokens": 30},
        "measure": {"cot_after": True},
        "min_specificity": 0,
    }
    with monkeypatch.context() as patch:
        script_cots(patch, {})
        return run(settings(tmp_path / "results", tiny_folder("llama"), data, **changes)).run.path


def judge(swept: Path, **judge: Any) -> JobResult:
    plain = {"run": str(swept), "judge": {"kind": "rules", "reading": "answered", **judge}, "lr": LR}
    made = FurJudge(validate(FurJudgeConfig, plain, "test"), Supplies())
    return run_measure(made, lambda _measure: Report((), ()))


def baseline(swept: Path) -> JobResult:
    kinds = [{"kind": "cc_shap", "max_evaluations": 150}, {"kind": "early_answering"}]
    plain = {"run": str(swept), "baselines": kinds, "disagreeing": True}
    made = FurBaselines(validate(FurBaselinesConfig, plain, "test"), Supplies())
    return run_measure(made, lambda _measure: Report((), ()))


def capability(swept: Path) -> FurCapability:
    records = [problem(n, id=f"q{n}", question=f"What is thing {n}?", answer="AB"[n % 2]) for n in range(5)]
    data = {"data_set": "local", "path": str(write_problems(swept.parent / "general.jsonl", records))}
    plain = {"run": str(swept), "lr": LR, "data_set": {**data, "fields": {"id": "id"}}, "num_cots": 2}
    made = FurCapability(validate(FurCapabilityConfig, plain, "test"), Supplies())
    run_measure(made, lambda _measure: Report((), ()))
    return made


def covered(*roots: str, without: tuple[str, ...] = ()) -> set[str]:
    return {name.removeprefix("fairwitness.") for name in closure(*roots, without=without)}


def test_a_key_covers_the_code_that_measures_and_no_other() -> None:
    changes, shap = covered(CHANGES_CODE), covered(SHAP_CODE)
    assert {"followups.baselines.rows", "lm.scoring", "chains.items"} <= changes & shap
    assert not changes & {"followups.baselines.cc_shap", "followups.baselines.texts", "fur.unlearn"}
    assert not shap & {"followups.baselines.changes", "followups.baselines.texts", "chains.steps"}
    texts = covered(TEXTS_CODE, without=("fairwitness.judges",))
    assert "problems.draws" in texts
    rules = covered(pairs.PAIRS_CODE, RULES_CODE, without=("fairwitness.analysis",))
    models = covered(pairs.PAIRS_CODE, "fairwitness.judges.template", without=("fairwitness.analysis",))
    assert ("text.conclusions" in rules, "text.conclusions" in models) == (True, False)
    asked = covered(plan.CAPABILITY_CODE, without=("fairwitness.fur",))
    assert {"chains.cots", "followups.capability.plan"} <= asked
    others = ("analysis", "fur", "report", "organisms", "judges.factory", "judges.endpoint", "judges.local")
    for found in (changes, shap, texts, rules, models, asked):
        assert not [name for name in found if name.startswith(others)]


def test_names_of_judges_change_no_key_and_readings_do() -> None:
    keys = {rules_key(RulesConfig(reading=reading, name=name)) for reading in ("stated", "answered") for name in "ab"}
    assert len(keys) == 2


def test_other_code_of_rules_judges_anew_and_its_verdicts_take_the_place(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judge(swept)
    judge(swept, reading="stated")
    assert sum(first.counts.values()) > 0
    monkeypatch.setattr(pairs, "code_revision", lambda *_modules, without: "other")
    assert judge(swept).counts == first.counts
    number = sum(first.counts.values())
    rows = rows_of(swept / "store", "judgements")
    assert Counter(row["judge"] for row in rows) == {"rules (answered)": 2 * number, "rules (stated)": number}
    shown = {cell.judge: cell for cell in Results(swept).judged}
    assert sorted(shown) == ["rules (answered)", "rules (stated)"]
    answered = shown["rules (answered)"]
    assert answered.judge_key == rules_key(RulesConfig(reading="answered"))
    assert answered.num_judged + answered.num_skipped == number


def test_other_code_of_cc_shap_measures_it_alone(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = baseline(swept)
    watch = watch_pools(monkeypatch)

    def revision(*modules: str, without: tuple[str, ...] = ()) -> str:
        return "other" if SHAP_CODE in modules else code_revision(*modules, without=without)

    monkeypatch.setattr(baselines, "code_revision", revision)
    assert baseline(swept).counts == first.counts
    assert {type(item) for item in watch.items} == {ShapItem}
    kinds = Counter(row["baseline"] for row in rows_of(swept / "store", "baselines"))
    assert kinds == {"cc_shap": 10, "early_answering": 10}
    assert {view.summary.baseline for view in Results(swept).baselines} == {"cc_shap", "early_answering"}


def test_other_code_of_capability_measures_anew_and_its_answers_take_the_place(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = capability(swept).measured
    monkeypatch.setattr(plan, "code_revision", lambda *_modules, without: "other")
    made = capability(swept)
    assert made.measured == (first,)
    assert len(rows_of(swept / "store", "capability")) == 2 * first.num_steps
    (shown,) = Results(swept).capabilities
    assert shown.num_steps == first.num_steps
    assert set(Results(swept).run.capability["capability_revision"]) == {made.plans[0].revision}


def test_tracked_later_is_what_a_live_job_logs(swept: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    live, later = (f"sqlite:///{tmp_path / name}" for name in ("live.db", "later.db"))
    plain = yaml.safe_load((swept / "config.yaml").read_text(encoding="utf-8"))
    plain["tracking"] = {"enabled": True, "uri": live}
    (swept / "config.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
    judge(swept)
    judge(swept, reading="stated")
    capability(swept)
    done = CliRunner().invoke(app, ["track", str(swept), "--uri", later])
    assert done.exit_code == 0, done.output
    assert [line.partition(": ")[0] for line in done.output.splitlines() if line.startswith("MLflow run")] == [
        "MLflow run",
        *["MLflow run of fur_judge"] * 2,
        "MLflow run of fur_capability",
    ]
    found = logged(mlflow, live)
    assert Counter(job for job, _ in found) == {"fur_judge": 2, "fur_capability": 1}
    assert logged(mlflow, later) == found


def logged(mlflow: Any, uri: str) -> set[tuple[str, str]]:
    """The cells of all follow-ups: name, parameters and metrics."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    ids = [one.experiment_id for one in client.search_experiments()]
    runs = {one.info.run_id: one for one in client.search_runs(ids)}
    jobs = {name: one.data.tags.get("fairwitness.job") for name, one in runs.items()}
    return {
        (jobs[parent], json.dumps([one.data.params, one.data.metrics], sort_keys=True))
        for one in runs.values()
        if (parent := one.data.tags.get("mlflow.parentRunId")) and jobs[parent] != "fur_sweep"
    }
