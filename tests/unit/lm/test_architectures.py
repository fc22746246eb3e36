"""The FF2 table against tiny random models of every architecture in it."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from fairwitness.errors import ModelError
from fairwitness.lm.inspect import FF2_MODULES, find_ff2
from tests.helpers.tiny_configs import HIDDEN, NUM_LAYERS, tiny_config

VOCAB = 64


def _skeleton(model_type: str) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(tiny_config(model_type, VOCAB))


@pytest.mark.parametrize("model_type", sorted(FF2_MODULES))
def test_entry_is_the_projection_back_to_the_hidden_size(model_type: str) -> None:
    model = _skeleton(model_type)
    names = find_ff2(model, model_type, None)
    assert len(names) == NUM_LAYERS
    assert [name.split(".")[-len(FF2_MODULES[model_type].split(".")) - 1] for name in names] == ["0", "1"]
    assert not any("vision" in name for name in names)
    for name in names:
        module = model.get_submodule(name)
        weight = module.weight
        num_outputs, num_inputs = reversed(weight.shape) if isinstance(module, Conv1D) else weight.shape
        assert num_outputs == HIDDEN
        assert num_inputs in (48, 4 * HIDDEN)
        assert "attn" not in name


@pytest.mark.parametrize("model_type", sorted(FF2_MODULES))
def test_entry_runs_with_the_last_logits_only_and_a_cache(model_type: str) -> None:
    """What scoring and generation ask of every architecture in the table."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(model_type, VOCAB)).eval()
    tokens_BT = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        whole = model(input_ids=tokens_BT, logits_to_keep=1).logits
        start = model(input_ids=tokens_BT[:, :3], attention_mask=torch.ones(1, 3, dtype=torch.long), use_cache=True)
        mask_BT = torch.ones(1, 4, dtype=torch.long)
        end = model(input_ids=tokens_BT[:, 3:], attention_mask=mask_BT, cache=start.cache, use_cache=True)
    assert whole.shape == (1, 1, VOCAB)
    torch.testing.assert_close(end.logits[:, -1], whole[:, -1], rtol=1e-4, atol=1e-5)


def test_only_gpt2_keeps_it_transposed() -> None:
    transposed = set()
    for model_type in FF2_MODULES:
        model = _skeleton(model_type)
        if isinstance(model.get_submodule(find_ff2(model, model_type, None)[0]), Conv1D):
            transposed.add(model_type)
    assert transposed == {"gpt2"}


def test_unknown_architecture_says_how_to_name_the_module() -> None:
    config = AutoConfig.for_model(
        "gpt_neox_japanese", vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match=r"'gpt_neox_japanese' is not in the table.*as ff2_module") as caught:
        find_ff2(model, "gpt_neox_japanese", None)
    assert "mlp.dense_4h_to_h" in str(caught.value)
    assert len(find_ff2(model, "gpt_neox_japanese", "mlp.dense_4h_to_h")) == 2


def test_override_wins_over_the_table() -> None:
    names = find_ff2(_skeleton("llama"), "llama", "mlp.up_proj")
    assert names == ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj")


def test_module_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"'mlp.down_projj' is in 0 of 2 decoder layers.*mlp\.down_proj"):
        find_ff2(_skeleton("llama"), "llama", "mlp.down_projj")


def test_module_in_some_layers_only_is_refused() -> None:
    model = _skeleton("llama")
    model.model.layers[1].mlp.down_proj = torch.nn.Identity()
    del model.model.layers[1].mlp.down_proj
    with pytest.raises(ModelError, match="is in 1 of 2 decoder layers"):
        find_ff2(model, "llama", None)


def test_module_without_a_matrix_is_refused() -> None:
    with pytest.raises(ModelError, match="no weight matrix"):
        find_ff2(_skeleton("llama"), "llama", "input_layernorm")
