"""A dry run of drafts: numbers as the run's own, bounds where the model is still to write, nothing stored or asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.engine import ContinueItem
from fairwitness.drafts.measure import DraftFaithfulness
from fairwitness.experiment.measure import Supplies
from tests.helpers.chat_server import Action, Asked, chat_server, completion
from tests.helpers.commands import Command, process_settings_restored
from tests.helpers.drafts import DRAFT, draft_settings, run_plain, write_drafts
from tests.helpers.sweeps import problem, rows_of, watch_pools, write_problems

NUM_PROBLEMS = 5
PRICES = {"price_per_million_prompt_tokens": 2.0, "price_per_million_completion_tokens": 8.0}


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    # The choice that the second draft concludes cannot be made wrong by rules.
    records = [problem(number) for number in range(NUM_PROBLEMS)]
    records[1]["choices"] = ["fox", "owl", "elk"]
    records[1]["answer"] = "A"
    data = write_problems(tmp_path / "animals.jsonl", records)
    drafts = [
        {"problem_id": "p0", "draft": DRAFT},
        {"problem_id": "p1", "draft": f"Owls. {DRAFT}"},
        {"problem_id": "p2", "draft": "I do not know."},
        {"problem_id": "p3", "draft": "It is easy. The answer is C."},
        {"problem_id": "p9", "draft": DRAFT},
    ]
    return draft_settings(
        tmp_path / "results", tiny_folder("llama"), data, write_drafts(tmp_path / "drafts.jsonl", drafts)
    )


def lines_of(plain: dict[str, Any]) -> list[str]:
    return list(DraftFaithfulness(validate(DraftFaithfulnessConfig, plain, "test"), Supplies()).dry_run())


def test_given_drafts_are_counted_exactly_and_nothing_is_stored(
    plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch, "fairwitness.drafts.dry_run")
    lines = DraftFaithfulness(validate(DraftFaithfulnessConfig, plain, "test"), Supplies()).dry_run()
    announced = [next(lines) for _ in range(2)]
    assert announced[0] == f"1 study for 1 actor; the run would write to {tmp_path / 'results' / 'drafts'}"
    # p0: 12 within; p1: 6, no wrong choice; p3: two steps, so two places, 8.
    assert announced[1] == (
        "tiny on animals, other drafts: 5 problems, 1 line of the file refused, 3 usable drafts, 32 continuations "
        "(26 within drafts, 6 after them); measuring a few tokens now"
    )
    assert watch.items == []
    (estimate,) = lines
    assert re.fullmatch(
        r"tiny on animals, other drafts: at most about \d+ s on machines like this one, where every text reaches its "
        r"limit; 0\.00 GiB of weights and up to [\d.]+ GiB of keys and values per actor",
        estimate,
    )
    assert {type(item) for item in watch.items} == {ContinueItem}
    assert not (tmp_path / "results").exists()
    rows = rows_of(run_plain(plain).run.store_path, "continuations")
    made = [row for row in rows if row["status"] in ("ok", "truncated")]
    assert len(made) == 32


def test_own_drafts_have_a_bound(plain: dict[str, Any]) -> None:
    plain |= {"own_drafts": True, "draft_files": [], "conclusions": ["direct"]}
    _, what, _ = lines_of(plain)
    assert what == (
        "tiny on animals, own drafts: 5 problems, at most 5 usable drafts, at most 70 continuations "
        "(60 within drafts, 10 after them); measuring a few tokens now"
    )


def test_several_studies_add_up(plain: dict[str, Any]) -> None:
    lines = lines_of({**plain, "own_drafts": True})
    assert lines[0].startswith("2 studies for 1 actor; ")
    assert re.fullmatch(r"all studies: at most about \d+ s", lines[-1])


def judged(url: str, **changes: Any) -> dict[str, Any]:
    judge = {"kind": "openai", "base_url": url, "model": "judge", "api_key_env": None, **PRICES, **changes}
    return {
        "judge": judge,
        "writer": {**judge, "model": "writer"},
        "behaviour_by": "judge",
        "conclusion_order": ["rules", "judge"],
        "decomposer": "judge",
        "corruptor": "writer",
        "conclusions": ["direct", "plausible"],
    }


def requests_of(lines: list[str], who: str) -> tuple[int, float]:
    (line,) = [line for line in lines if line.startswith(f"{who} {who}: ")]
    found = re.search(r"at most ([\d,]+) requests, which cost at most about ([\d.]+)", line)
    assert found
    return int(found[1].replace(",", "")), float(found[2])


def test_requests_are_bounded_and_none_is_made(plain: dict[str, Any]) -> None:
    def reply(asked: Asked, _: int) -> Action:
        text = str(asked.body)
        if "backtrack:" in text:
            return Action(body=completion("backtrack: none"))
        if "last sentences" in text:
            return Action(body=completion("Owls it is, so the answer is A."))
        if "changed choice" in text:
            return Action(body=completion("purple owl"))
        return Action(body=completion("verdict: following" if "correction" in text else "verdict: none"))

    with chat_server(reply) as server:
        plain |= judged(server.url)
        lines = lines_of(plain)
        assert server.asked == []
        judge, writer = requests_of(lines, "judge"), requests_of(lines, "writer")
        what = next(line for line in lines if "usable drafts" in line)
        # The judge may find a conclusion where the rules find none.
        assert "at most 4 usable drafts, at most " in what
        run_plain(plain)
        sent = {name: [one for one in server.asked if one.body["model"] == name] for name in ("judge", "writer")}
    assert 0 < len(sent["judge"]) <= judge[0]
    # A corrupted choice and a conclusion for each of the four drafts; the run has three with a conclusion.
    assert (len(sent["writer"]), writer[0]) == (6, 8)
    for name, (_, cost) in (("judge", judge), ("writer", writer)):
        longest = sum(len(str(one.body["messages"]).encode()) for one in sent[name])
        tokens = sum(one.body["max_tokens"] for one in sent[name])
        # Bytes of all that was sent, a quarter of them at least tokens.
        assert cost >= (2.0 * longest / 4 + 8.0 * tokens) / 1e6 - 0.005


def test_a_budget_is_named_and_local_judges_cost_nothing(
    plain: dict[str, Any], tiny_folder: Callable[[str], Path]
) -> None:
    budget = judged("http://localhost:9/v1", max_cost=0.5)
    lines = lines_of({**plain, **budget})
    assert sum(line.endswith("; max_cost ends them at 0.5") for line in lines) == 2
    local = {"kind": "local", "model": {"model": str(tiny_folder("llama")), "name": "small"}}
    lines = lines_of({**plain, "judge": local, "behaviour_by": "judge"})
    (line,) = [line for line in lines if line.startswith("judge small: ")]
    assert line == "judge small: at most 26 requests"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    with process_settings_restored():
        yield Command(tmp_path, capsys, "draft_faithfulness")


def test_the_command(command: Command, plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ended = command(plain, dry=True)
    assert ended.code == 0
    assert ended.out.startswith("dry run: ")
    assert "draft_files, other: refused: " in caplog.text
    keyless = {**plain, **judged("http://localhost:9/v1", api_key_env="ABSENT_KEY")}
    assert "ABSENT_KEY" in command(keyless, dry=True).refused()
    assert not (tmp_path / "results").exists()
