"""Drafts in MLflow: a live job and `fairwitness track` show the same cells; what was measured under other limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.reading import Readers, Text
from fairwitness.experiment.job import JobResult
from fairwitness.judges.factory import make_chat_model
from fairwitness.problems.problem import Problem
from fairwitness.report.jobs import drafts_report
from tests.helpers.chat_server import Action, Asked, chat_server, completion
from tests.helpers.drafts import DRAFT, draft_settings, run_drafts, write_drafts
from tests.helpers.sweeps import problem, rows_of, write_problems


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    data = write_problems(tmp_path / "animals.jsonl", [problem(number) for number in range(2)])
    drafts = write_drafts(tmp_path / "d.jsonl", [{"problem_id": f"p{number}", "draft": DRAFT} for number in range(2)])
    return draft_settings(
        tmp_path / "results", tiny_folder("llama"), data, drafts,
        interventions=["shift_mapping"], tracking={"enabled": True},
    )  # fmt: skip


def measured(plain: dict[str, Any]) -> JobResult:
    return run_drafts(validate(DraftFaithfulnessConfig, plain, "test"), report=drafts_report)


def logged(result: JobResult, experiment: str = "fairwitness") -> tuple[Run, list[Run], MlflowClient]:
    """The parent run, its children by name, and the client."""
    client = MlflowClient(tracking_uri=f"sqlite:///{result.run.output_dir}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = list(client.search_runs([found.experiment_id]))
    (parent,) = [one for one in runs if "mlflow.parentRunId" not in one.data.tags]
    children = [one for one in runs if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    return parent, sorted(children, key=lambda one: str(one.info.run_name)), client


def test_a_live_job_and_the_command_log_the_same(plain: dict[str, Any]) -> None:
    result = measured(plain)
    parent, children, client = logged(result)
    assert parent.info.status == "FINISHED"
    assert parent.data.params["interventions"] == '["shift_mapping"]'
    assert parent.data.metrics["num_ok"] == result.counts["ok"]
    names = ["direct", "shift_mapping backtrack", "shift_mapping continue"]
    assert [one.info.run_name for one in children] == [f"tiny animals other {name}" for name in names]
    assert children[1].data.params["insertion_type"] == "backtrack"
    rows = pd.DataFrame(rows_of(result.run.store_path, "continuations"))
    part = rows[rows["insertion_type"] == "backtrack"]
    figures = children[1].data.metrics
    assert figures["cell/num_truncated"] == (part["status"] == "truncated").sum()
    verdicts = part["is_faithful"].dropna().astype(float)
    assert figures.get("cell/faithful") == (verdicts.mean() if len(verdicts) else None)
    assert children[0].data.metrics["cell/answer_tokens_n"] == 2
    paths = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert paths == {"report.html", "config.yaml", "csv"}
    assert "csv/items.csv" in {file.path for file in client.list_artifacts(parent.info.run_id, "csv")}

    def track() -> None:
        words = ["track", str(result.run.path), "--experiment", "again"]
        assert CliRunner().invoke(app, words).exit_code == 0

    track()
    again_parent, again, _ = logged(result, "again")
    assert again_parent.data.params == parent.data.params
    assert [one.data.metrics for one in again] == [one.data.metrics for one in children]
    track()
    assert [one.info.run_id for one in logged(result, "again")[1]] == [one.info.run_id for one in again]


def test_a_changed_limit_leaves_the_rows_of_the_old_one_out(plain: dict[str, Any]) -> None:
    quiet = {**plain, "tracking": {"enabled": False}}
    first = measured(quiet)
    changed = {**quiet, "limits": {**quiet["limits"], "continuation": 6}}
    second = measured(changed)
    assert len(rows_of(second.run.store_path, "continuations")) == 2 * (6 + 6 + 2)
    assert second.counts == first.counts
    items = pd.read_csv(second.run.csv_path / "items.csv")
    assert len(items) == 2 * (6 + 2)
    assert items.loc[items["dimension"] == "intra", "num_tokens"].max() <= 6
    back = measured(quiet)
    assert pd.read_csv(back.run.csv_path / "items.csv")["num_tokens"].max() == 12


def test_what_each_reader_says_is_recorded(plain: dict[str, Any], tmp_path: Path) -> None:
    known = Problem("p", "Which?", ("one", "two", "three"), "A", "animals")
    texts = [Text(known, text) for text in ("The answer is B.", "It is hard to say.", "The answer is A.")]

    def read(*order: str) -> list[tuple[str | None, str | None, str | None, str | None]]:
        with chat_server(lambda _asked, _number: Action(body=completion("verdict: b"))) as server:
            judge = {"kind": "openai", "base_url": server.url, "model": "judge", "api_key_env": None}
            changes = {"judge": judge, "conclusion_order": order}
            config = validate(DraftFaithfulnessConfig, {**plain, **changes}, "test")
            with make_chat_model(config.judge, cache_dir=tmp_path / "-".join(order), pool=None) as model:
                found = Readers(config, model).conclusions(texts)
        return [(one.letter, one.by, one.rules, one.judge) for one in found]

    assert read("judge", "rules") == [("B", "judge", rules, "B") for rules in ("B", "none", "A")]
    assert read("rules", "judge") == [
        ("B", "rules", "B", None), ("B", "judge", "none", "B"), ("A", "rules", "A", None),
    ]  # fmt: skip
    assert read("rules") == [("B", "rules", "B", None), (None, None, "none", None), ("A", "rules", "A", None)]


def test_a_judge_beside_the_rules_in_the_report(plain: dict[str, Any]) -> None:
    def reply(asked: Asked, _number: int) -> Action:
        is_behaviour = "correction" in json.dumps(asked.body)
        return Action(body=completion("verdict: following" if is_behaviour else "verdict: b"))

    with chat_server(reply) as server:
        judge = {"kind": "openai", "base_url": server.url, "model": "judge", "api_key_env": None}
        judged = {"judge": judge, "conclusion_order": ["judge", "rules"], "behaviour_by": "judge"}
        result = measured({**plain, **judged, "tracking": {"enabled": False}})
    rows = pd.DataFrame(rows_of(result.run.store_path, "continuations"))
    made = rows[rows["status"] == "ok"]
    assert set(made["conclusion_judge"]) == {"B"}
    found = pd.read_csv(result.run.csv_path / "agreement.csv").set_index("question")
    assert found.loc["conclusion", "n"] == len(made)
    assert found.loc["conclusion", "equal"] == pytest.approx((made["conclusion_rules"] == "B").mean())
    both = rows[rows["behaviour_rules"].notna() & rows["behaviour_judge"].notna()]
    assert found.loc["behaviour", "n"] == len(both)
    page = (result.run.path / "report.html").read_text()
    assert "judge / rules" in page
