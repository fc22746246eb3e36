"""What is known before loading, and every model that is refused, with its one message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub.errors import HTTPError, RepositoryNotFoundError
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from fairwitness.config import validate
from fairwitness.errors import ConfigError, ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.inspect import inspect_model
from fairwitness.lm.model import load
from tests.helpers.tiny_configs import CONTEXT, NUM_LAYERS
from tests.helpers.tiny_models import save_tiny
from tests.helpers.tiny_tokenizers import (
    byte_level_tokenizer,
    merging_tokenizer,
    metaspace_tokenizer,
    splitting_tokenizer,
)

Folders = Callable[[str], Path]


@pytest.fixture
def folder(tiny_folder: Folders, tmp_path: Path) -> Path:
    """A tiny Llama of the test's own, to spoil."""
    return Path(shutil.copytree(tiny_folder("llama"), tmp_path / "model"))


def _refused(model: object, message: str, **options: object) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        inspect_model(ModelConfig.model_validate({"model": str(model), **options}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma2", "opt"])
def test_counts_equal_those_of_the_stored_weights(model_type: str, tiny_folder: Folders) -> None:
    facts = inspect_model(ModelConfig(model=str(tiny_folder(model_type)), dtype="bfloat16"))
    model = AutoModelForCausalLM.from_pretrained(tiny_folder(model_type))
    assert facts.num_params == sum(parameter.numel() for parameter in model.parameters())
    assert facts.weight_bytes == 2 * facts.num_params
    assert facts.num_ff2_params == sum(model.get_parameter(f"{name}.weight").numel() for name in facts.ff2_names)
    assert (facts.num_layers, facts.context_length) == (NUM_LAYERS, CONTEXT)
    assert facts.model_type == model_type


def test_reads_no_weights(folder: Path) -> None:
    facts = inspect_model(ModelConfig(model=str(folder)))
    with safe_open(folder / "model.safetensors", "pt") as file:
        num_stored = sum(file.get_tensor(key).numel() for key in file.keys())  # noqa: SIM118
    assert facts.num_params == num_stored
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    assert inspect_model(ModelConfig(model=str(folder))).num_params == num_stored
    with pytest.raises(ModelError, match="the weights cannot be loaded"):
        load(ModelConfig(model=str(folder)))


def test_revision_follows_the_weights(folder: Path, tiny_folder: Folders) -> None:
    before = inspect_model(ModelConfig(model=str(folder))).revision
    assert before == inspect_model(ModelConfig(model=str(tiny_folder("llama")))).revision
    save_tiny(folder, "llama", seed=1)
    assert inspect_model(ModelConfig(model=str(folder))).revision != before


def test_name_is_the_last_part_or_the_one_given(folder: Path) -> None:
    assert inspect_model(ModelConfig(model=f"{folder}/")).name == "model"
    assert inspect_model(ModelConfig(model=str(folder), name="mine")).name == "mine"


def test_missing_path(tmp_path: Path) -> None:
    _refused(tmp_path / "absent", "absent: no such file or folder; give a path that exists or a hub id")
    _refused("absent.gguf", "no such file or folder")
    _refused("./absent", "no such file or folder")
    _refused("~nobody-of-this-name/absent", "no such file or folder")


def test_hub_id_while_the_hub_is_off(tmp_path: Path) -> None:
    _refused("owner/absent-model", r"owner/absent-model: no such path here; .*HF_HUB_OFFLINE.*Give a path")


def test_hub_model_in_the_cache_is_used_with_its_commit(
    tiny_folder: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--owner--tiny"
    shutil.copytree(tiny_folder("llama"), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    facts = inspect_model(ModelConfig(model="owner/tiny"))
    assert facts.revision == commit
    assert facts.name == "tiny"
    assert load(ModelConfig(model="owner/tiny")).facts == facts
    _refused("owner/tiny", "HF_HUB_OFFLINE", revision="absent-branch")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt"])
def test_pickled_weights(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / name)
    _refused(folder, f"{name} holds pickled weights, which can run code.*writes safetensors")
    _refused(folder / name, "holds pickled weights")


def test_pickled_weights_beside_safetensors_are_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    assert load(ModelConfig(model=str(folder))).facts.num_params > 0


def test_folders_that_hold_no_model(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _refused(tmp_path / "empty", "has no config.json; give a folder that save_pretrained wrote")
    _refused(folder / "model.safetensors", "is not a GGUF file; give the folder")
    (folder / "config.json").unlink()
    _refused(folder, "has no config.json")
    (tmp_path / "empty" / "some.gguf").touch()
    _refused(tmp_path / "empty", "gguf_file: some.gguf")


def test_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    _refused(folder, r"has no \*\.safetensors")


def test_adapter_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    _refused(folder, "holds a LoRA adapter.*merge it")


def _edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_unknown_architecture(folder: Path) -> None:
    _edit_config(folder, model_type="llamma")
    _refused(folder, "config.json cannot be used")
    _edit_config(folder, model_type="mixtral", num_local_experts=2)
    _refused(
        folder, "'mixtral' is not in the table of FF2 modules; name its down-projection in the config as ff2_module"
    )
    _edit_config(folder, model_type="vit")
    _refused(folder, "'vit' is no causal language model")


def test_named_ff2_module(folder: Path) -> None:
    facts = inspect_model(ModelConfig(model=str(folder), ff2_module="mlp.gate_proj"))
    assert facts.ff2_names[0] == "model.layers.0.mlp.gate_proj"
    _refused(folder, "'mlp.dwn_proj' is in 0 of 2.*mlp.down_proj", ff2_module="mlp.dwn_proj")


def test_no_tokenizer(folder: Path) -> None:
    for file in [*folder.glob("tokenizer*"), *folder.glob("chat_template*")]:
        file.unlink()
    _refused(folder, "tokenizer.*save_pretrained")


def test_tokenizer_of_another_model(folder: Path) -> None:
    metaspace_tokenizer().save_pretrained(folder)
    num_rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    assert len(metaspace_tokenizer()) > 100
    _edit_config(folder, vocab_size=100)
    _refused(folder, "but the model has 100 rows; tokenizer and model do not belong together")
    _edit_config(folder, vocab_size=num_rows)


def test_tokenizer_that_merges_the_bracket(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "m", tokenizer=merging_tokenizer())
    _refused(model, r"the tokenizer merges the answer cue with letter A: '\(A'")


def test_tokenizer_that_splits_letters(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "m", tokenizer=splitting_tokenizer())
    _refused(model, "letter A after the answer cue as 2 tokens")


def test_no_chat_template(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "m", tokenizer=byte_level_tokenizer(chat=False))
    _refused(model, "no chat template; set prompt_style: plain", prompt_style="chat")
    assert inspect_model(ModelConfig(model=str(model))).notes == ()


def test_no_pad_token_gets_a_stand_in_and_a_note(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer(pad=False)
    facts = inspect_model(ModelConfig(model=str(save_tiny(tmp_path / "eos", tokenizer=tokenizer))))
    assert facts.pad_id == tokenizer.eos_token_id
    assert facts.notes == ("tokenizer without pad token: eos stands in; padding is never attended to",)
    tokenizer.eos_token = tokenizer.unk_token = tokenizer.bos_token = None
    facts = inspect_model(ModelConfig(model=str(save_tiny(tmp_path / "none", tokenizer=tokenizer))))
    assert facts.pad_id == 0
    assert facts.eos_ids == ()
    assert len(facts.notes) == 2


def test_every_stated_end_ends_a_generation(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [6, 9]}))
    tokenizer_eos = byte_level_tokenizer().eos_token_id
    assert inspect_model(ModelConfig(model=str(folder))).eos_ids == tuple(sorted({6, 9, tokenizer_eos}))


def test_architecture_without_sdpa_falls_back_and_says_so(tiny_folder: Folders) -> None:
    facts = inspect_model(ModelConfig(model=str(tiny_folder("gemma2"))))
    assert facts.attention == "eager"
    assert facts.notes == ("architecture without sdpa attention: eager is used",)
    assert inspect_model(ModelConfig(model=str(tiny_folder("llama")))).attention == "sdpa"


def test_model_without_a_stated_context(tiny_folder: Folders) -> None:
    facts = inspect_model(ModelConfig(model=str(tiny_folder("bloom"))))
    assert facts.context_length == 2048
    assert any("no context length" in note for note in facts.notes)


def test_config_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="did you mean 'dtype'"):
        validate(ModelConfig, {"model": "x", "dtyp": "float32"}, "test")
    with pytest.raises(ConfigError, match="dtype"):
        validate(ModelConfig, {"model": "x", "dtype": "float16"}, "test")
    with pytest.raises(ConfigError, match="model"):
        validate(ModelConfig, {"model": ""}, "test")


def _online(monkeypatch: pytest.MonkeyPatch, listing: Callable[[], list[str]]) -> None:
    """A hub that answers with this listing and refuses every download."""
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    monkeypatch.setattr("huggingface_hub.list_repo_files", lambda *_args, **_options: listing())
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_args, **_options: pytest.fail("downloaded"))


def test_hub_model_with_pickled_weights_is_refused_before_any_download(monkeypatch: pytest.MonkeyPatch) -> None:
    _online(monkeypatch, lambda: ["config.json", "pytorch_model.bin", "tokenizer.json"])
    _refused("owner/old", "pytorch_model.bin holds pickled weights")


@pytest.mark.parametrize("error", [HTTPError("no route"), OSError("no route")])
def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def listing() -> list[str]:
        raise error

    _online(monkeypatch, listing)
    _refused("owner/model", "owner/model: no such path here; .*the hub cannot be reached")


def test_hub_id_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def listing() -> list[str]:
        raise RepositoryNotFoundError("404 not found", response=Mock(headers={}))

    _online(monkeypatch, listing)
    _refused("owner/mistyped", "owner/mistyped: the hub refuses it .*check the id, revision and token")
