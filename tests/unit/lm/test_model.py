"""Loading: numeric type, device, frozen parameters, complete weights."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from fairwitness.errors import ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import LanguageModel, checksum, load
from tests.helpers.tiny_models import TINY_TYPES, save_tiny

Folders = Callable[[str], Path]


@pytest.mark.parametrize("model_type", TINY_TYPES)
def test_weights_are_those_on_disk_and_frozen(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    stored = AutoModelForCausalLM.from_pretrained(lm.facts.folder, dtype=torch.float32).state_dict()
    assert checksum(lm.model.state_dict()) == checksum(stored)
    assert not lm.model.training
    assert not any(parameter.requires_grad for parameter in lm.model.parameters())
    assert {parameter.device for parameter in lm.model.parameters()} == {lm.device}
    assert list(lm.ff2_weights()) == [f"{name}.weight" for name in lm.ff2_names]
    assert [module.weight for module in lm.ff2_modules()] == list(lm.ff2_weights().values())


def test_bfloat16_rounds_the_stored_weights(tiny_folder: Folders) -> None:
    single = load(ModelConfig(model=str(tiny_folder("llama"))))
    half = load(ModelConfig(model=str(tiny_folder("llama")), dtype="bfloat16"))
    for name, weight in half.ff2_weights().items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, single.ff2_weights()[name].bfloat16())


def test_stored_bfloat16_is_computed_in_the_type_asked_for(tmp_path: Path) -> None:
    lm = load(ModelConfig(model=str(save_tiny(tmp_path / "m", dtype=torch.bfloat16))))
    assert {parameter.dtype for parameter in lm.model.parameters()} == {torch.float32}


def test_sampling_settings_of_the_model_are_dropped(tiny_folder: Folders, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "m"))
    settings = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 9.0, "eos_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    lm = load(ModelConfig(model=str(folder)))
    assert not lm.model.generation_config.do_sample
    assert lm.model.generation_config.repetition_penalty in (None, 1.0)


def test_incomplete_weights_are_refused(tiny_folder: Folders, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "m"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensors, model.layers.1.mlp.down_proj.weight"):
        load(ModelConfig(model=str(folder)))


def test_weights_of_another_shape_are_refused(tiny_folder: Folders, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("llama"), tmp_path / "m"))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "intermediate_size": 56}))
    with pytest.raises(ModelError, match="the weights cannot be loaded"):
        load(ModelConfig(model=str(folder)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_a_device(tiny_folder: Folders) -> None:
    with pytest.raises(ModelError, match=r"device cuda was asked for.*set device: cpu"):
        load(ModelConfig(model=str(tiny_folder("llama")), device="cuda"))


def test_config_and_facts_cross_a_process(tiny_llama: LanguageModel) -> None:
    for value in (tiny_llama.config, tiny_llama.facts):
        assert pickle.loads(pickle.dumps(value)) == value
