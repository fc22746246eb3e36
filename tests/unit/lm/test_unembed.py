"""The final norm and the output embedding by themselves give what the whole model gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from fairwitness.errors import ModelError
from fairwitness.lm.activations import hidden_states
from fairwitness.lm.inspect import FF2_MODULES
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.unembed import final_norm, unembed
from tests.helpers.fur_tasks import random_ids
from tests.helpers.tiny_configs import HIDDEN, tiny_config

Models = Callable[[str], LanguageModel]


def _other(lm: LanguageModel, **values: Any) -> LanguageModel:
    """A random model of the same architecture with other settings."""
    config = tiny_config(lm.facts.model_type, lm.facts.vocab_size)
    for key, value in values.items():
        setattr(config, key, value)
    torch.manual_seed(0)
    return replace(lm, model=AutoModelForCausalLM.from_config(config).eval())


def _check(lm: LanguageModel) -> None:
    ids = random_ids(random.Random(1), lm.facts.vocab_size, 7)
    with torch.no_grad(), hidden_states(lm, layers=[2], positions=[range(7)]) as reading:
        output = lm.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        normed_TD = final_norm(lm, reading.states()[0][0])
        logits_TV = unembed(lm, normed_TD)
    torch.testing.assert_close(normed_TD, output.hidden_states[-1][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits_TV, output.logits[0].float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_type", sorted(FF2_MODULES))
def test_the_last_layer_gives_the_models_logits(model_type: str, tiny_lm: Models) -> None:
    _check(tiny_lm(model_type))


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("granite", {"logits_scaling": 3.0}),
        ("cohere", {"logit_scale": 5.0}),
        ("cohere2", {"logit_scale": 0.2}),
        ("gemma2", {"final_logit_softcapping": 0.5}),
        ("gemma2", {"final_logit_softcapping": None}),
        ("gemma3_text", {"final_logit_softcapping": 0.5}),
    ],
)
def test_what_is_done_to_the_logits_is_done(model_type: str, values: dict[str, Any], tiny_lm: Models) -> None:
    _check(_other(tiny_lm(model_type), **values))


def test_bfloat16_and_a_gradient(fresh_lm: Models) -> None:
    lm = fresh_lm("llama")
    lm.model.to(torch.bfloat16)
    _check(lm)
    states_D = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(0), requires_grad=True)
    logits_V = unembed(lm, final_norm(lm, states_D))
    assert logits_V.dtype == torch.float32
    logits_V[3].backward()
    assert states_D.grad is not None
    assert float(states_D.grad.norm()) > 0


def test_what_nobody_checked_is_refused(tiny_lm: Models) -> None:
    lm = tiny_lm("llama")
    unknown = replace(lm, facts=replace(lm.facts, model_type="no_such"))
    with pytest.raises(ModelError, match="'no_such': what it does to its logits is not known"):
        unembed(unknown, torch.zeros(HIDDEN))
    narrow = _other(tiny_lm("opt"), word_embed_proj_dim=16, do_layer_norm_before=False)
    with pytest.raises(ModelError, match="takes states of width 16, not 32"):
        unembed(narrow, torch.zeros(HIDDEN))
    with pytest.raises(ModelError, match=r"0 modules beside 'model\.decoder\.layers' may be the final norm"):
        final_norm(narrow, torch.zeros(HIDDEN))
    two = _other(lm)
    two.model.model.ln_f = nn.Identity()
    with pytest.raises(ModelError, match=r"2 modules beside 'model\.layers'"):
        final_norm(two, torch.zeros(HIDDEN))
