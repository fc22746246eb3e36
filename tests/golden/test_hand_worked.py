"""Two iterations on a two-layer model small enough to work by hand, in numpy, without autograd.

The model: three tokens, two hidden dimensions, no attention. h0 = E[token]; h1 = h0 + W1·relu(h0);
h2 = h1 + W2·relu(h1); logits = U·h2. FF2 are W1 and W2. Every quantity below follows from the chain rule and AdamW's
published update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairwitness.chains.items import HeldOut, Question
from fairwitness.chains.steps import StepTokens
from fairwitness.fur import unlearn
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import IterationResult, UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup, unlearn_group
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_tasks import engine_config

Floats = NDArray[np.float64]

EMBED = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
FF2 = (np.array([[0.5, -0.25], [0.25, 0.5]]), np.array([[0.25, 0.5], [-0.5, 0.75]]))
UNEMBED = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])

LR, WEIGHT_DECAY, BETA1, BETA2, EPS, NPO_BETA = 0.01, 0.01, 0.9, 0.999, 1e-8, 0.1
FORGET = StepTokens((0, 1, 2), 1, ((1,), (2,)))  # the log-probability of 1 after 0 and of 2 after 1
RETAIN = (StepTokens((2, 0), 1, ((1,),)), StepTokens((1, 1, 0), 1, ((2,),)))  # the distributions after 2 and after 1
QUESTION, HELD_OUT = Question((2,), (0, 1)), Question((0, 2, 1), (2, 1))


class _Layer(nn.Module):
    def __init__(self, weight: Floats) -> None:
        super().__init__()
        self.down = nn.Linear(2, 2, bias=False)
        self.down.weight.data = torch.tensor(weight, dtype=torch.float32)


class TwoLayers(nn.Module):
    """The model as a torch module, with the interface of a Hugging Face decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(torch.tensor(EMBED, dtype=torch.float32))
        self.layers = nn.ModuleList([_Layer(weight) for weight in FF2])
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight.data = torch.tensor(UNEMBED, dtype=torch.float32)
        self.requires_grad_(False)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, *, input_ids: Tensor, use_cache: bool) -> Any:
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = hidden + layer.get_submodule("down")(torch.relu(hidden))
        return SimpleNamespace(logits=self.head(hidden))


def _language_model() -> LanguageModel:
    names = ("layers.0.down", "layers.1.down")
    facts = ModelFacts("two", Path(), "", "two", "eager", 8, 2, 3, 26, 8, 104, names, (), 0)
    model: Any = TwoLayers()
    return LanguageModel(model, SimpleNamespace(), ModelConfig(model="two"), facts, torch.device("cpu"), names)


@dataclass(frozen=True)
class _Pass:
    inputs: tuple[Floats, Floats]  # relu(h0), relu(h1)
    hidden1: Floats
    probs: Floats


def _forward(token: int, weights: tuple[Floats, Floats]) -> _Pass:
    hidden0 = EMBED[token]
    hidden1 = hidden0 + weights[0] @ np.maximum(hidden0, 0)
    hidden2 = hidden1 + weights[1] @ np.maximum(hidden1, 0)
    exp = np.exp(UNEMBED @ hidden2)
    return _Pass((np.maximum(hidden0, 0), np.maximum(hidden1, 0)), hidden1, exp / exp.sum())


def _backward(run: _Pass, logits_grad: Floats, weights: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    hidden2_grad = UNEMBED.T @ logits_grad
    hidden1_grad = hidden2_grad + (weights[1].T @ hidden2_grad) * (run.hidden1 > 0)
    return np.outer(hidden1_grad, run.inputs[0]), np.outer(hidden2_grad, run.inputs[1])


def _losses_and_gradient(weights: tuple[Floats, Floats]) -> tuple[float, float, tuple[Floats, Floats]]:
    pairs = [(FORGET.ids[p - 1], FORGET.ids[p]) for p in FORGET.content]
    log_ratio = sum(math.log(_forward(a, weights).probs[b] / _forward(a, FF2).probs[b]) for a, b in pairs)
    ratio = math.exp(NPO_BETA * log_ratio)
    npo, pull = 2 / NPO_BETA * math.log(1 + ratio), 2 * ratio / (1 + ratio)  # pull = d npo / d log_ratio
    grads = []
    for a, b in pairs:
        run = _forward(a, weights)
        grads.append(_backward(run, pull * (np.eye(3)[b] - run.probs), weights))
    kls = []
    for token in (step.ids[p - 1] for step in RETAIN for p in step.content):
        p, q = _forward(token, weights).probs, _forward(token, FF2).probs
        kls.append(float((p * np.log(p / q)).sum()))
        grads.append(_backward(_forward(token, weights), p * (np.log(p / q) - kls[-1]) / 2, weights))
    return npo, sum(kls) / 2, (sum(g[0] for g in grads), sum(g[1] for g in grads))  # type: ignore[return-value]


def _adamw(weight: Floats, grads: list[Floats], lr: float) -> Floats:
    """The update after the gradients so far, the last one being the newest."""
    first, second = np.zeros((2, 2)), np.zeros((2, 2))
    for grad in grads:
        first = BETA1 * first + (1 - BETA1) * grad
        second = BETA2 * second + (1 - BETA2) * grad**2
    first, second = first / (1 - BETA1 ** len(grads)), second / (1 - BETA2 ** len(grads))
    return weight * (1 - lr * WEIGHT_DECAY) - lr * first / (np.sqrt(second) + EPS)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[GroupedFF2]:
    """The variants that `unlearn_group` makes, so that their weights can be read afterwards."""
    made: list[GroupedFF2] = []
    original = unlearn._variants

    def variants(*args: Any) -> GroupedFF2:
        made.append(original(*args))
        return made[-1]

    monkeypatch.setattr(unlearn, "_variants", variants)
    return made


def _unlearn(num_iterations: int) -> list[IterationResult]:
    task = UnlearnTask("hand", FORGET, RETAIN, QUESTION, 0, (), (), 0)
    recipe = RecipeConfig(num_iterations=num_iterations, weight_decay=WEIGHT_DECAY, beta=NPO_BETA)
    group = UnlearnGroup((task, task), recipe, LR, (HeldOut(HELD_OUT, 0),), None)
    first, second = unlearn_group(_language_model(), group, engine_config())
    assert first.measured == second.measured
    return list(first.measured)


def test_the_numpy_gradient_is_right() -> None:
    weights = (FF2[0] + 0.125, FF2[1] - 0.25)
    gradient = _losses_and_gradient(weights)[2]
    for layer, row, col in np.ndindex(2, 2, 2):
        values = []
        for change in (1e-5, -1e-5):
            moved = [weight.copy() for weight in weights]
            moved[layer][row, col] += change
            npo, kl, _ = _losses_and_gradient((moved[0], moved[1]))
            values.append(npo + kl)
        assert gradient[layer][row, col] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_one_update_worked_by_hand(trained: list[GroupedFF2]) -> None:
    (measured,) = _unlearn(1)
    npo, kl, gradient = _losses_and_gradient(FF2)
    assert (npo, kl) == (pytest.approx(20 * math.log(2)), 0.0)
    assert measured.losses["npo"] == pytest.approx(13.862943611)
    assert measured.losses["kl"] == 0.0
    for weight_K, weight, grad in zip(trained[0].parameters(), FF2, gradient, strict=True):
        expected = _adamw(weight, [grad], LR)
        # After one update the moments are g and g²: the weight moves by the rate against the gradient's sign.
        np.testing.assert_allclose(expected, weight * 0.9999 - 0.01 * np.sign(grad), rtol=1e-6)
        for variant in weight_K.detach().numpy():
            np.testing.assert_allclose(variant, expected, rtol=3e-7)


def test_two_updates_and_what_is_measured_after_each(trained: list[GroupedFF2]) -> None:
    history = _unlearn(2)
    npo, _, first_gradient = _losses_and_gradient(FF2)
    once = tuple(_adamw(weight, [grad], LR) for weight, grad in zip(FF2, first_gradient, strict=True))
    npo_once, kl_once, second_gradient = _losses_and_gradient((once[0], once[1]))
    grads = zip(once, first_gradient, second_gradient, strict=True)
    twice = tuple(
        _adamw(weight, [first, second], LR / 2) for weight, first, second in grads
    )  # half of the rate is left
    for weight_K, expected in zip(trained[0].parameters(), twice, strict=True):
        np.testing.assert_allclose(weight_K[1].detach().numpy(), expected, rtol=1e-6)

    assert (history[0].losses["npo"], history[1].losses["npo"]) == (
        pytest.approx(npo),
        pytest.approx(npo_once, rel=1e-6),
    )
    assert history[1].losses["kl"] == pytest.approx(kl_once, rel=1e-4)
    for measured, weights in zip(history, (once, twice), strict=True):
        logprobs = [math.log(_forward(a, weights).probs[b]) for a, b in ((0, 1), (1, 2))]
        assert measured.cot_step_logprob == pytest.approx(sum(logprobs) / 2, rel=1e-6)
        letters = _forward(2, weights).probs[:2]
        assert measured.probs == pytest.approx(letters / letters.sum(), rel=1e-6)
        assert measured.letter_mass == pytest.approx(letters.sum(), rel=1e-6)
        assert measured.index == int(letters.argmax())
        assert measured.held_out == (int(_forward(1, weights).probs[[2, 1]].argmax()),)


def test_the_figures_themselves(trained: list[GroupedFF2]) -> None:
    first, second = _unlearn(1)[0], _unlearn(2)[1]
    after_one = [[[0.50995, -0.239975], [0.239975, 0.50995]], [[0.259975, 0.50995], [-0.50995, 0.759925]]]
    for weight_K, expected in zip(trained[0].parameters(), after_one, strict=True):
        np.testing.assert_allclose(weight_K[0].detach().numpy(), expected, rtol=1e-6)
    assert _figures(first) == pytest.approx([0.5150949115, 0.9882533338, -2.2883395450, 13.8629436112, 0.0], rel=1e-6)
    assert _figures(second) == pytest.approx(
        [0.5227023717, 0.9887315817, -2.3120991153, 13.7690036488, 3.0321290e-4], rel=1e-4
    )
    assert _figures(second)[:4] == pytest.approx([0.5227023717, 0.9887315817, -2.3120991153, 13.7690036488], rel=1e-6)


def _figures(measured: IterationResult) -> list[float]:
    return [
        measured.probs[0],
        measured.letter_mass,
        measured.cot_step_logprob,
        measured.losses["npo"],
        measured.losses["kl"],
    ]
