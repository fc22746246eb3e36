"""Agreement of the judges of a run, and of published files, as function and as command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.errors import DataError
from fairwitness.judges.agreement import file_agreement, pair_agreements
from fairwitness.judges.published import read_verdicts
from fairwitness.records.store import Store

VERDICTS = {
    "first": ["same", "same", "different", "different", "unclear", None],
    "second": ["same", "different", "different", "different", "same", "same"],
}


def row(judge: str, number: int, verdict: str | None, **changes: Any) -> dict[str, Any]:
    base = {
        "key": f"{judge}-{number}",
        "item_key": f"task-{number}",
        "kind": "cot_after",
        "scope_key": "scope",
        "model": "m",
        "data_set": "d",
        "problem_id": f"p{number // 2}",
        "judge": judge,
        "judge_key": f"key-{judge}",
        "verdict": verdict,
        "status": "ok" if verdict else "failed",
        "reason": None if verdict else "unparsable",
    }
    return {**base, **changes}


def rows() -> list[dict[str, Any]]:
    return [row(judge, n, verdict) for judge, verdicts in VERDICTS.items() for n, verdict in enumerate(verdicts)]


def test_judges_are_compared_on_what_both_judged() -> None:
    (pair,) = pair_agreements(pd.DataFrame(rows()))
    assert (pair.kind, pair.judges, pair.num_only) == ("cot_after", ("first", "second"), (0, 1))
    assert pair.agreement.num_items == 5
    first, second = (verdicts[:5] for verdicts in VERDICTS.values())
    assert pair.agreement.kappa.value == pytest.approx(cohen_kappa_score(first, second))
    assert pair.agreement.kappa.num_clusters == 3


def test_order_of_rows_plays_no_part() -> None:
    frame = pd.DataFrame(rows())
    assert pair_agreements(frame) == pair_agreements(frame.sample(frac=1, random_state=3))


def test_judges_of_one_name_are_told_apart_and_questions_kept_apart() -> None:
    more = [row("first", n, "same", key=f"x{n}", judge_key="other") for n in range(3)]
    asked = [row("third", n, "same", key=f"y{n}", kind="mistake") for n in range(3)]
    found = pair_agreements(pd.DataFrame([*rows(), *more, *asked]))
    assert [pair.judges for pair in found] == [
        ("first [key-fi]", "first [other]"),
        ("first [key-fi]", "second"),
        ("first [other]", "second"),
    ]


def write(path: Path, *responses: str) -> Path:
    lines = [json.dumps({"instance_id": f"q{n // 2}_{n}", "response": text}) for n, text in enumerate(responses)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_published_files_are_compared_by_instance(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", "Yes  \nBoth say A.", "No. They differ.", "Unclear", "Yes")
    second = write(tmp_path / "b.jsonl", "Yes", "no", "No", "No", "Yes")
    pair = file_agreement([first, second])
    assert (pair.judges, pair.agreement.num_items, pair.num_only) == (("a.jsonl", "b.jsonl"), 4, (0, 1))
    assert pair.agreement.kappa.value == pytest.approx(
        cohen_kappa_score(["same", "different", "unclear", "same"], ["same", "different", "different", "different"])
    )
    assert pair.agreement.kappa.num_clusters == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"bad\.jsonl:1 .*mend or remove the line"),
        ("[]", r"bad\.jsonl:1 .*mend or remove the line"),
        ('{"instance_id": "q_1"}', r"bad\.jsonl:1: has no instance_id or no response"),
        ('{"instance_id": "q_1", "response": ""}', "begin with Yes, No or Unclear: ''"),
        ('{"instance_id": "q_1", "response": "Perhaps"}', "Unclear: 'Perhaps'"),
        (
            '{"instance_id": "q_1", "response": "Yes"}\n\n{"instance_id": "q_1", "response": "No"}',
            ":3: .* is there twice",
        ),
    ],
)
def test_a_line_that_is_no_judgement_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_verdicts(tmp_path / "bad.jsonl")


def command(*arguments: Path | str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["judges", "agree", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_command_prints_a_line_per_pair(tmp_path: Path) -> None:
    with Store(tmp_path / "run" / "store") as store:
        store.append("judgements", rows())
    code, output = command(tmp_path / "run")
    assert code == 0
    assert output.startswith("cot_after: first / second: kappa 0.")
    assert "n = 5, equal 60.0%, by chance" in output
    assert output.endswith("0 and 1 judged by one of them only\n")


def test_the_command_takes_two_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "Yes", "No", "No", "Yes")
    assert command(path, path) == (
        0,
        "published: a.jsonl / a.jsonl: kappa 1.00 (1.00 to 1.00), n = 4, equal 100.0%, by chance 50.0%\n",
    )


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    with Store(tmp_path / "run" / "store") as store:
        store.append("judgements", rows()[:6])
    code, output = command(tmp_path / "run")
    assert code == 2
    assert "needs two judges with verdicts on one question, there are: first" in output
    assert command(tmp_path)[0] == 2
    assert command(tmp_path / "none.jsonl", tmp_path / "none.jsonl")[0] == 2
    assert command("a", "b", "c")[0] == 2
