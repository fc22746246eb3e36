"""The sets' original files, when they are on this machine beside the repository."""

from collections import Counter
from pathlib import Path

import pytest

from fairwitness.problems.config import DataConfig, FieldMap
from fairwitness.problems.load import load_problems, select
from fairwitness.problems.records import LoadedProblems

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def load(name: str, place: str, seed: int = 1, **changes: object) -> LoadedProblems:
    path = DATA / place
    if not path.exists():
        pytest.skip(f"the original file ../shared/data/{place} is not here")
    return load_problems(DataConfig(data_set=name, path=str(path), **changes), seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "place", "num_problems", "num_refused"),
    [
        ("arc_challenge", "arc_challenge/dev.jsonl", 299, 0),
        ("openbookqa", "openbookqa/test.jsonl", 500, 0),
        ("strategyqa", "strategyqa/dev.json", 229, 0),
        ("truthfulqa", "truthfulqa/mc_task.json", 773, 17),
        ("bbh_sports", "bbh_sports/sports_understanding.json", 248, 2),
        ("mmlu", "mmlu/test", 1236, 4),
    ],
)
def test_original_files_load_by_name(name: str, place: str, num_problems: int, num_refused: int) -> None:
    loaded = load(name, place)
    assert (len(loaded.problems), len(loaded.refused)) == (num_problems, num_refused)
    assert all(problem.gold for problem in loaded.problems)
    assert len(select(loaded, num_problems=30, num_held_out=20, seed=0).measured) == 30


def test_arc_keys_1_to_4_become_letters() -> None:
    loaded = load("arc_challenge", "arc_challenge/dev.jsonl")
    assert Counter(problem.gold for problem in loaded.problems) == {"D": 83, "C": 78, "B": 73, "A": 64, "E": 1}
    assert Counter(len(problem.choices) for problem in loaded.problems) == {4: 295, 3: 3, 5: 1}


def test_truthfulqa_gold_is_no_longer_always_first() -> None:
    first, second = (load("truthfulqa", "truthfulqa/mc_task.json", seed=seed) for seed in (1, 2))
    shares = Counter(problem.gold for problem in first.problems)
    assert max(len(problem.choices) for problem in first.problems) > 10
    assert 0.15 < shares["A"] / len(first.problems) < 0.32
    assert {p.problem_id for p in first.problems} == {p.problem_id for p in second.problems}
    assert first.problems != second.problems
    assert first.data_revision != second.data_revision


def test_what_the_original_files_get_refused_for() -> None:
    empty_choices = load("truthfulqa", "truthfulqa/mc_task.json").refused
    assert all("is empty" in item.reason and item.field == "mc1_targets" for item in empty_choices)
    repeats = load("bbh_sports", "bbh_sports/sports_understanding.json").refused
    assert [item.number for item in repeats] == [156, 228]
    assert all("same question and choices" in item.reason for item in repeats)


def test_mmlu_subjects_of_files() -> None:
    loaded = load("mmlu", "mmlu/test", subjects=("global_facts", "philosophy"))
    assert Counter(problem.metadata["subject"] for problem in loaded.problems) == {
        "global_facts": 100,
        "philosophy": 311,
    }


def test_mmlu_redux_by_field_mapping() -> None:
    fields = FieldMap(metadata=("error_type",))
    loaded = load("local", "mmlu_redux/global_facts.csv", fields=fields)
    assert len(loaded.problems) == 100
    assert loaded.problems[0].gold == "C"
    assert loaded.problems[0].choices == ("by 5 fold", "by 10 fold", "by 15 fold", "by 20 fold")
