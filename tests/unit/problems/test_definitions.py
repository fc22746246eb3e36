"""Every ready definition on rows in the hub's shape, through `datasets`, without a network."""

from pathlib import Path
from typing import Any

import datasets
import pytest

from fairwitness.errors import DataError
from fairwitness.problems.config import DataConfig, FieldMap
from fairwitness.problems.load import DEFINITIONS, load_problems

LETTERS = ["A", "B", "C", "D"]
TEXTS = ["red", "green", "blue", "grey"]
HUB_ROWS: dict[str, list[dict[str, Any]]] = {
    "arc_challenge": [
        {"id": "M1", "question": "Which colour?", "choices": {"text": TEXTS, "label": LETTERS}, "answerKey": "C"},
        {
            "id": "M2",
            "question": "Which one?",
            "choices": {"text": TEXTS[:3], "label": ["1", "2", "3"]},
            "answerKey": "3",
        },
    ],
    "openbookqa": [
        {"id": "7-1", "question_stem": "Grass is", "choices": {"text": TEXTS, "label": LETTERS}, "answerKey": "C"},
        {"id": "7-2", "question_stem": "Sky is", "choices": {"text": TEXTS, "label": LETTERS}, "answerKey": "C"},
    ],
    "strategyqa": [
        {"qid": "a", "term": "t", "description": "d", "question": "Is it?", "answer": False, "facts": "f"},
        {"qid": "b", "term": "t", "description": "d", "question": "Is that?", "answer": False, "facts": "f"},
    ],
    "truthfulqa": [
        {
            "question": question,
            "mc1_targets": {"choices": TEXTS, "labels": [1, 0, 0, 0]},
            "mc2_targets": {"choices": TEXTS, "labels": [1, 1, 0, 0]},
        }
        for question in ("Which colour?", "Which one?")
    ],
    "bbh_sports": [
        {"input": 'Is the following sentence plausible? "A ran."', "target": "no"},
        {"input": 'Is the following sentence plausible? "B ran."', "target": "no"},
    ],
    "mmlu": [
        {"question": "Which colour?", "subject": "anatomy", "choices": TEXTS, "answer": 2},
        {"question": "Which one?", "subject": "virology", "choices": TEXTS, "answer": 2},
    ],
}
GOLD_TEXT = {
    "arc_challenge": "blue",
    "openbookqa": "blue",
    "strategyqa": "No",
    "truthfulqa": "red",
    "bbh_sports": "no",
    "mmlu": "blue",
}


def hub_of(rows: list[dict[str, Any]]) -> Any:
    asked: list[tuple[Any, ...]] = []

    def load(path: str, name: str | None = None, *, split: str, revision: str | None) -> datasets.Dataset:
        asked.append((path, name, split, revision))
        return datasets.Dataset.from_list(rows)

    load.asked = asked  # type: ignore[attr-defined]
    return load


def test_every_definition_has_rows_here() -> None:
    assert set(HUB_ROWS) == set(DEFINITIONS)


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_rows_in_the_hub_s_shape(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = hub_of(HUB_ROWS[name])
    monkeypatch.setattr(datasets, "load_dataset", hub)
    loaded = load_problems(DataConfig(data_set=name, revision="abc"), seed=5)
    definition = DEFINITIONS[name]
    assert hub.asked == [(definition.hub_id, definition.hub_config, definition.hub_split, "abc")]
    assert (loaded.name, loaded.split, loaded.refused) == (name, definition.hub_split, ())
    assert len(loaded.problems) == 2
    for problem in loaded.problems:
        assert problem.choices[problem.letters.index(str(problem.gold))] == GOLD_TEXT[name]
        assert problem.data_set == name


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_the_same_rows_as_a_local_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_of(HUB_ROWS[name]))
    by_hub = load_problems(DataConfig(data_set=name), seed=5)
    datasets.Dataset.from_list(HUB_ROWS[name]).to_parquet(str(tmp_path / "rows.parquet"))
    by_file = load_problems(DataConfig(data_set=name, path=str(tmp_path / "rows.parquet")), seed=5)
    assert [(p.problem_id, p.question, p.choices, p.gold) for p in by_file.problems] == [
        (p.problem_id, p.question, p.choices, p.gold) for p in by_hub.problems
    ]


def test_mmlu_subjects_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_of(HUB_ROWS["mmlu"]))
    loaded = load_problems(DataConfig(data_set="mmlu", subjects=("virology",)), seed=0)
    assert [problem.metadata["subject"] for problem in loaded.problems] == ["virology"]
    with pytest.raises(DataError, match="did you mean 'anatomy'"):
        load_problems(DataConfig(data_set="mmlu", subjects=("anatomyy",)), seed=0)


def test_any_hub_set_by_mapping_through_the_real_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local folder in the hub's layout goes the same way as a hub id."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{"q": "Which?", "options": TEXTS, "right": 3}, {"q": "And which?", "options": TEXTS, "right": 0}]
    (tmp_path / "mine").mkdir()
    datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / "mine" / "test.parquet"))
    config = DataConfig(
        data_set="hub",
        hub_id=str(tmp_path / "mine"),
        fields=FieldMap(question="q", choices="options", gold="right"),
    )
    loaded = load_problems(config, seed=0)
    assert loaded.name == "mine"
    assert [problem.gold for problem in loaded.problems] == ["D", "A"]
    assert (tmp_path / "cache").is_dir()
    with pytest.raises(DataError, match=r"split 'nope' cannot be loaded"):
        load_problems(config.model_copy(update={"split": "nope"}), seed=0)


def test_a_hub_that_cannot_be_reached_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError, match=r"allenai/ai2_arc.*give a downloaded file by `path`"):
        load_problems(DataConfig(data_set="arc_challenge"), seed=0)
