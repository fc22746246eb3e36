"""FUR in the way of its published code, written plainly and by us, to compare the engine with.

For each task two models are loaded from disk, the policy and the reference; weights, optimiser state and arithmetic
are bfloat16. In each of five iterations: one AdamW update of the FF2 weights by NPO and KL on one forgotten and four
retained sequences, then the problem's own and the held-out questions one at a time, ten tokens generated for each
letter answer (probabilities from the first one), a CoT of 300 tokens written anew, and one forward pass for the
step's probability. The objective is the engine's default: NPO of a whole step, KL from policy to reference on content
tokens, linear decay.

`generate` is transformers' own, greedy, with its key-value cache. Nothing is slowed down on purpose. `python
benchmarks/fur_speed.py` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedModel

from fairwitness.chains.items import HeldOut, Question
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.lm.source import no_progress_bars

LETTER_TOKENS = 10
COT_TOKENS = 300


@dataclass(frozen=True)
class PlainRecord:
    """One task after one iteration: answers to its own and the held-out questions, and the step's log-probability."""

    index: int
    probs: tuple[float, ...]
    held_out: tuple[int, ...]
    cot_step_logprob: float
    npo_loss: float
    kl_loss: float


@dataclass(frozen=True)
class Length:
    """How generation ends: after exactly `LETTER_TOKENS` or `COT_TOKENS`, or also at the end-of-text token."""

    stop_at_eos: bool

    def limits(self, num_tokens: int) -> dict[str, int]:
        """Arguments of `generate`."""
        return {"max_new_tokens": num_tokens, **({} if self.stop_at_eos else {"min_new_tokens": num_tokens})}


def unlearn_one(
    folder: Path, task: UnlearnTask, recipe: RecipeConfig, lr: float, held_out: Sequence[HeldOut], length: Length
) -> list[PlainRecord]:
    """Unlearns and measures one task, one record per iteration."""
    policy, reference = _load(folder), _load(folder)
    parameters = [p for name, p in policy.named_parameters() if name.endswith("mlp.down_proj.weight")]
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda iteration: 1 - iteration / recipe.num_iterations)
    records = []
    for _ in range(recipe.num_iterations):
        npo, kl = _losses(policy, reference, task, recipe)
        optimizer.zero_grad()
        (recipe.coefficients["npo"] * npo + recipe.coefficients["kl"] * kl).backward()
        optimizer.step()
        schedule.step()
        records.append(_measure(policy, task, held_out, length, npo.item(), kl.item()))
    return records


def _load(folder: Path) -> PreTrainedModel:
    with no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    return model.eval().requires_grad_(False)


def _losses(
    policy: PreTrainedModel, reference: PreTrainedModel, task: UnlearnTask, recipe: RecipeConfig
) -> tuple[Tensor, Tensor]:
    spans = [task.forget, *task.retain]
    batch = _padded(spans)
    logits_BTV = policy(**batch, use_cache=False).logits
    with torch.no_grad():
        ref_logits_BTV = reference(**batch, use_cache=False).logits
    chosen, ref_chosen = _content_logprob(logits_BTV[0], task.forget), _content_logprob(ref_logits_BTV[0], task.forget)
    npo = 2 / recipe.beta * F.softplus(recipe.beta * (chosen - ref_chosen))
    terms = []
    for row, span in enumerate(task.retain, start=1):
        log_p, log_q = _content_logits(logits_BTV[row], span), _content_logits(ref_logits_BTV[row], span)
        terms.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return npo, torch.cat(terms).mean()


def _padded(spans: Sequence[StepTokens]) -> dict[str, Tensor]:
    longest = max(len(span.ids) for span in spans)
    ids = [[*span.ids, *[0] * (longest - len(span.ids))] for span in spans]
    mask = [[1] * len(span.ids) + [0] * (longest - len(span.ids)) for span in spans]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def _content_logits(logits_TV: Tensor, span: StepTokens) -> Tensor:
    """Log-probabilities at the positions before the content tokens."""
    before = torch.tensor(span.content) - 1
    return torch.log_softmax(logits_TV[before].float(), dim=-1)


def _content_logprob(logits_TV: Tensor, span: StepTokens) -> Tensor:
    targets = torch.tensor([span.ids[p] for p in span.content])
    return _content_logits(logits_TV, span).gather(1, targets[:, None]).sum()


@torch.no_grad()
def _measure(
    policy: PreTrainedModel, task: UnlearnTask, held_out: Sequence[HeldOut], length: Length, npo: float, kl: float
) -> PlainRecord:
    own = _letter_probs(policy, task.question, length)
    others = tuple(int(_letter_probs(policy, item.question, length).argmax()) for item in held_out)
    policy.generate(**_alone(task.cot_prompt), do_sample=False, **length.limits(COT_TOKENS))
    ids, positions = torch.tensor([task.forget.ids]), torch.tensor(task.forget.positions)
    logits_TV = policy(input_ids=ids, use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits_TV[positions - 1].float(), dim=-1).gather(1, ids[0, positions][:, None])
    return PlainRecord(int(own.argmax()), tuple(own.tolist()), others, float(logprobs.mean()), npo, kl)


def _letter_probs(policy: PreTrainedModel, question: Question, length: Length) -> Tensor:
    output: Any = policy.generate(
        **_alone(question.ids),
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
        **length.limits(LETTER_TOKENS),
    )
    return torch.softmax(output.scores[0][0, list(question.letter_ids)].float(), dim=0)


def _alone(ids: Sequence[int]) -> dict[str, Tensor]:
    return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
