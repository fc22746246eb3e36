"""Every objective: numbers worked by hand, gradients, and what the rest of the platform takes for granted of each."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import fairwitness
from fairwitness.fur.config import OBJECTIVE_SETTINGS, ObjectiveName, RecipeConfig
from fairwitness.fur.losses import Forgotten, Objective, Retained, npo_loss
from fairwitness.fur.memory import LOGIT_COPIES
from fairwitness.fur.objective import objective_of
from fairwitness.fur.objectives import OBJECTIVES
from fairwitness.fur.study import FUR_CODE
from fairwitness.fur.study import OBJECTIVES as PACKAGE
from fairwitness.records import code
from fairwitness.records.code import PLUMBING, closure, code_revision
from tests.helpers.studies import make_study

LN2, LN3 = math.log(2.0), math.log(3.0)
# Two sequences: π 1/4 and 1/27 where the reference has 1/2 and 1/3; of two and of three tokens.
LOGPROB, REFERENCE, NUM_TOKENS = (-2 * LN2, -3 * LN3), (-LN2, -LN3), (2.0, 3.0)
# Two positions: (1/2, 1/2) and (1/4, 3/4), each the other's reference; the text has the second and the first token.
PROBS, TARGET = ((0.5, 0.5), (0.25, 0.75)), (1, 0)
FORWARD_KL = (0.5 * math.log(4 / 3), 0.25 * math.log(0.5) + 0.75 * math.log(1.5))

HAND_WORKED: list[tuple[str, dict[str, Any], dict[str, tuple[float, float]]]] = [
    # π/ref is 1/2 and 1/9; β = 1: 2·ln(1 + π/ref).
    ("npo_kl", {"beta": 1.0}, {"npo": (2 * math.log(1.5), 2 * math.log(10 / 9)), "kl": FORWARD_KL}),
    ("npo_kl", {"beta": 1.0, "kl_direction": "reference_from_policy"}, {"kl": FORWARD_KL[::-1]}),
    # β = 1/2: 4·ln(1 + √(π/ref)).
    ("npo_grad_diff", {"beta": 0.5}, {"npo": (4 * math.log(1 + 0.5**0.5), 4 * math.log(4 / 3)), "nll": (LN2, 2 * LN2)}),
    ("gradient_ascent", {}, {"ascent": (-2 * LN2, -3 * LN3), "nll": (LN2, 2 * LN2)}),
    # Mean log-probabilities -ln 2 and -ln 3; β = 1, γ = 0: -2·ln σ(ln 2) = 2·ln(3/2), and 2·ln(4/3).
    ("simnpo", {"beta": 1.0}, {"simnpo": (2 * math.log(1.5), 2 * math.log(4 / 3)), "nll": (LN2, 2 * LN2)}),
    # β = 2, γ = ln 2: -ln σ(2·ln 2 - ln 2) = ln(3/2), and ln(1 + 2/9).
    ("simnpo", {"beta": 2.0, "gamma": LN2}, {"simnpo": (math.log(1.5), math.log(11 / 9))}),
]


def _objective(name: str, parameters: Mapping[str, Any] | None = None) -> Objective:
    return objective_of(RecipeConfig.model_validate({"objective": name, **(parameters or {})}))


def _values(objective: Objective, logprob_W: Tensor, logprobs_NV: Tensor) -> dict[str, Tensor]:
    """All losses, given only what the objective says it needs."""
    none, double = torch.empty(0), torch.float64
    reference = torch.tensor(REFERENCE, dtype=double) if objective.needs.reference else none
    forget = objective.forget(Forgotten(logprob_W, reference, torch.tensor(NUM_TOKENS, dtype=double)))
    ref_NV = torch.tensor(PROBS[::-1], dtype=double).log() if objective.needs.retain == "divergence" else none
    target = torch.tensor(TARGET) if objective.needs.retain == "targets" else none
    retain = objective.retain(Retained(logprobs_NV, ref_NV, target))
    assert not forget.losses.keys() & retain.losses.keys()
    return {**forget.losses, **retain.losses}


def _inputs() -> tuple[Tensor, Tensor]:
    """Log-probabilities of the sequences, and logits whose log-softmax are those of the positions."""
    logits_NV = torch.tensor(PROBS, dtype=torch.float64).log() + torch.tensor([[3.0], [-1.0]], dtype=torch.float64)
    return torch.tensor(LOGPROB, dtype=torch.float64).requires_grad_(), logits_NV.requires_grad_()


@pytest.mark.parametrize(("name", "parameters", "expected"), HAND_WORKED, ids=[one[0] for one in HAND_WORKED])
def test_numbers_worked_by_hand(
    name: str, parameters: dict[str, Any], expected: dict[str, tuple[float, float]]
) -> None:
    logprob_W, logits_NV = _inputs()
    found = _values(_objective(name, parameters), logprob_W, torch.log_softmax(logits_NV, dim=-1))
    for loss, values in expected.items():
        assert found[loss].tolist() == pytest.approx(values, rel=1e-12), loss


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_the_slopes(name: str) -> None:
    objective = _objective(name)

    def losses(logprob_W: Tensor, logits_NV: Tensor) -> tuple[Tensor, ...]:
        return tuple(_values(objective, logprob_W, torch.log_softmax(logits_NV, dim=-1)).values())

    assert torch.autograd.gradcheck(losses, _inputs())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_minimising_forgets_and_retains(name: str) -> None:
    objective = _objective(name)
    logprob_W, logits_NV = _inputs()
    values = _values(objective, logprob_W, torch.log_softmax(logits_NV, dim=-1))
    sum(value.sum() for value in values.values()).backward()  # type: ignore[union-attr]
    assert logprob_W.grad is not None
    assert logprob_W.grad.min() > 0  # down in probability
    assert logits_NV.grad is not None
    slopes = logits_NV.grad.tolist()
    if objective.needs.retain == "targets":
        assert [row[target] < 0 for row, target in zip(slopes, TARGET, strict=True)] == [True, True]
    else:  # towards the reference: up in the second choice, then up in the first
        assert [slopes[0][1] < 0, slopes[1][0] < 0] == [True, True]


def test_ascent_is_the_limit_of_npo() -> None:
    npo, ascent = (_inputs()[0] for _ in range(2))
    npo_loss(npo, torch.tensor(REFERENCE, dtype=torch.float64), beta=1e-9).sum().backward()
    _objective("gradient_ascent").forget(Forgotten(ascent, torch.empty(0), torch.ones(2))).losses[
        "ascent"
    ].sum().backward()
    torch.testing.assert_close(npo.grad, ascent.grad)


def test_simnpo_is_npo_of_one_token_with_a_certain_reference() -> None:
    logprob_W = torch.tensor(LOGPROB, dtype=torch.float64)
    one, zero = torch.ones(2), torch.zeros(2)
    found = _objective("simnpo", {"beta": 0.3}).forget(Forgotten(logprob_W, torch.empty(0), one)).losses["simnpo"]
    torch.testing.assert_close(found, npo_loss(logprob_W, zero, beta=0.3))


def test_a_longer_sequence_of_the_same_mean_has_the_same_simnpo_loss() -> None:
    lengths = torch.tensor([1.0, 7.0])
    given = Forgotten(-0.7 * lengths, torch.empty(0), lengths)
    (short, long) = _objective("simnpo").forget(given).losses["simnpo"].tolist()
    assert short == pytest.approx(long, rel=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_declared_is_what_is_given(name: ObjectiveName) -> None:
    settings, objective = OBJECTIVE_SETTINGS[name], _objective(name)
    logprob_W, logits_NV = _inputs()
    assert set(_values(objective, logprob_W, logits_NV)) == {*settings.forget, *settings.retain}
    forgotten = Forgotten(logprob_W, logprob_W.detach(), torch.tensor(NUM_TOKENS))
    assert objective.forget(forgotten).losses.keys() == settings.forget.keys()
    at_start = objective.at_start()
    for loss, value in objective.forget(forgotten).losses.items():
        if loss in at_start:
            assert value.tolist() == pytest.approx([at_start[loss]] * 2)
    assert at_start.keys() <= {*settings.forget, *settings.retain}
    assert objective.needs.retain in LOGIT_COPIES
    assert vars(objective) == RecipeConfig(objective=name).parameters


def test_every_objective_can_be_named() -> None:
    assert set(OBJECTIVES) == set(OBJECTIVE_SETTINGS) == set(get_args(ObjectiveName))
    files = {path.stem for path in (Path(fairwitness.__file__).parent / "fur" / "objectives").glob("*.py")}
    assert files == {"__init__", *OBJECTIVES}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_stands_on_no_other(name: str) -> None:
    alone = closure(f"{PACKAGE}.{name}", without=(PACKAGE,))
    assert [one for one in alone if one.startswith(PACKAGE)] == [f"{PACKAGE}.{name}"]
    source = Path(fairwitness.__file__).parent.joinpath("fur", "objectives", f"{name}.py").read_text(encoding="utf-8")
    assert PACKAGE not in source


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_cells_key_has_the_objectives_code_and_what_it_can_be_told(
    name: str, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    study = make_study(tmp_path, tiny_folder("llama"), recipe={"objective": name})
    assert study._cell_parts["code"] == code_revision(*FUR_CODE, f"{PACKAGE}.{name}", without=(PACKAGE,))
    recipe = study._cell_parts["recipe"]
    parameters = OBJECTIVE_SETTINGS[name].parameters
    assert recipe.keys() & {"beta", "gamma", "kl_direction"} == parameters.keys()


def _revisions(package: Path) -> dict[str, str]:
    return {
        name: code._revision(package, (*FUR_CODE, f"{PACKAGE}.{name}"), (*PLUMBING, PACKAGE)) for name in OBJECTIVES
    }


def test_a_key_covers_the_code_of_its_own_objective_only(tmp_path: Path) -> None:
    package = tmp_path / "fairwitness"
    shutil.copytree(Path(fairwitness.__file__).parent, package, ignore=shutil.ignore_patterns("weights", "__pycache__"))
    before = _revisions(package)
    assert len(set(before.values())) == len(OBJECTIVES)
    folder = package / "fur" / "objectives"
    folder.joinpath("brand_new.py").write_text("ONE = 1\n", encoding="utf-8")
    registry = folder.joinpath("__init__.py")
    registry.write_text(
        registry.read_text(encoding="utf-8") + "\nimport fairwitness.fur.objectives.brand_new\n", encoding="utf-8"
    )
    assert _revisions(package) == before
    for name in OBJECTIVES:
        path = folder / f"{name}.py"
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\nADDED = 1\n", encoding="utf-8")
        changed = _revisions(package)
        assert {one for one in OBJECTIVES if changed[one] != before[one]} == {name}
        path.write_text(text, encoding="utf-8")
    shared = package / "fur" / "losses.py"
    shared.write_text(shared.read_text(encoding="utf-8") + "\nADDED = 1\n", encoding="utf-8")
    assert not set(_revisions(package).values()) & set(before.values())
