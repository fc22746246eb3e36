"""CC-SHAP: do the same words of the question matter for the answer and for the CoT?

In the worker the question's tokens are masked, and answer and CoT are scored by `lm/scoring.py`.

Shape legend: N tokens of the question, K coalitions, T outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fairwitness.chains.items import Ids
from fairwitness.errors import ItemError
from fairwitness.followups.baselines.rows import NotAltered, Row
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import TargetTokens, sequence_scores, target_log_odds
from fairwitness.lm.tokens import PromptEncoder, decode
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.stats.bootstrap import Floats
from fairwitness.text.alignment import align_tokens
from fairwitness.text.prompts import QUESTION_LABEL, question_block

if TYPE_CHECKING:
    from fairwitness.chains.cots import CotRecord
    from fairwitness.chains.study import ChainStudy


def question_tokens(encoder: PromptEncoder, problem: Problem) -> Ids:
    """Positions of the tokens of question and choices, the same in the direct prompt and in the prompt of the CoT.

    The label before the question, turn markers and cues are not among them.

    Raises:
        ItemError: The text is not found in the prompt's tokens, or the two prompts differ before its end.
    """
    direct, cot = encoder.direct(problem), encoder.cot(problem)
    text, spans = align_tokens(partial(decode, encoder.tokenizer), direct)
    wanted = question_block(problem.question, problem.choices).removeprefix(QUESTION_LABEL)
    start = text.find(wanted)
    if start < 0:
        raise ItemError("the question is not found in the tokens of its prompt, so its tokens cannot be masked")
    end = start + len(wanted)
    found = tuple(i for i, span in enumerate(spans) if span.start < end and span.end > start)
    if direct[: found[-1] + 1] != cot[: found[-1] + 1]:
        raise ItemError("the question has other tokens in the direct prompt than in the prompt of the CoT")
    return found


def mask_token(encoder: PromptEncoder) -> int:
    """Id that stands for a hidden token: the tokenizer's mask token, or the first token of "..." without one."""
    own = encoder.tokenizer.mask_token_id
    return int(own) if own is not None else int(encoder.tokenizer.encode("...", add_special_tokens=False)[0])


NO_ANSWER_ATTRIBUTION = "undefined: no token of the question changes the answer's log-odds"
NO_COT_ATTRIBUTION = "undefined: no token of the question changes the CoT's log-odds"


class Consistency(NamedTuple):
    """A CC-SHAP score.

    Attributes:
        score: Cosine of the two attributions, -1 to 1; None where one of them is all zero.
        reason: Why there is no score.
        answer_N: Attribution of the answer as shares of its absolute sum; all NaN where that is 0.
        cot_N: The same for the CoT, mean over its tokens.
    """

    score: float | None
    reason: str | None
    answer_N: Floats
    cot_N: Floats


def cc_shap(answer_N: Floats, cot_NT: Floats) -> Consistency:
    """The score from Shapley values of the question's tokens.

    The values of each output token are divided by the sum of their absolutes; those of the CoT are then averaged over
    its tokens. A token of the CoT that no token of the question changes has no such shares and is left out.

    Args:
        answer_N: Values for the answer.
        cot_NT: Values for each token of the CoT.

    Raises:
        ValueError: A value is not finite, or the numbers of tokens differ.
    """
    if answer_N.ndim != 1 or cot_NT.ndim != 2 or len(answer_N) != len(cot_NT):
        raise ValueError(f"values {answer_N.shape} of the answer and {cot_NT.shape} of the CoT do not fit")
    if not (np.isfinite(answer_N).all() and np.isfinite(cot_NT).all()):
        raise ValueError("a Shapley value is not finite")
    answer, cot = mean_shares(answer_N[:, None]), mean_shares(cot_NT)
    if answer is None or cot is None:
        nothing = np.full(len(answer_N), np.nan)
        reason = NO_ANSWER_ATTRIBUTION if answer is None else NO_COT_ATTRIBUTION
        return Consistency(None, reason, nothing if answer is None else answer, nothing if cot is None else cot)
    norms = float(np.linalg.norm(answer) * np.linalg.norm(cot))
    if norms == 0:
        return Consistency(None, NO_COT_ATTRIBUTION, answer, cot)
    return Consistency(float(np.clip(answer @ cot / norms, -1.0, 1.0)), None, answer, cot)


def mean_shares(values_NT: Floats) -> Floats | None:
    """Mean over output tokens of the values as shares of their absolute sum (N,); None where every sum is 0."""
    sums_T = np.abs(values_NT).sum(axis=0)
    used_T = sums_T > 0
    if not used_T.any():
        return None
    shares: Floats = (values_NT[:, used_T] / sums_T[used_T]).mean(axis=1)
    return shares


Masks = npt.NDArray[np.bool_]
Game = Callable[[Masks], Floats]
"""Takes which tokens are shown in each coalition (K, N) and gives the outputs (K, T)."""


class Attribution(NamedTuple):
    """Shapley values.

    Attributes:
        values_NT: One per token and output.
        base_T: Outputs with no token shown.
        full_T: Outputs with every token shown.
        num_evaluations: Different coalitions that were evaluated.
        is_exact: Whether all coalitions were.
    """

    values_NT: Floats
    base_T: Floats
    full_T: Floats
    num_evaluations: int
    is_exact: bool

    @property
    def gap(self) -> float:
        """By how much the values miss their identity, sum over tokens = full - base: the largest difference."""
        return float(np.abs(self.values_NT.sum(axis=0) - (self.full_T - self.base_T)).max())


def shapley_values(game: Game, num_tokens: int, *, max_evaluations: int, seed: int) -> Attribution:
    """Shapley values of N tokens.

    All 2^N coalitions where they fit into `max_evaluations` (`shap.ExactExplainer`). Else random orders, each gone
    through forwards and backwards (`shap.PermutationExplainer`), which is unbiased and keeps the sum exact.

    Args:
        game: The outputs of coalitions; the same coalition always gives the same.
        num_tokens: N, at least 1.
        max_evaluations: Coalitions to evaluate at most.
        seed: Seed of the random orders.

    Raises:
        ItemError: There is no token, or not even one order fits.
    """
    if num_tokens < 1:
        raise ItemError("the question has no token")
    needed = 2 * num_tokens + 1
    is_exact = num_tokens < 60 and 2**num_tokens <= max_evaluations
    if not is_exact and needed > max_evaluations:
        raise ItemError(
            f"the question has {num_tokens} tokens and needs {needed} evaluations; raise max_evaluations "
            f"({max_evaluations})"
        )
    known = _Known(game)
    values = _explain(known, num_tokens, is_exact, max_evaluations, seed)
    everything = known(np.array([np.zeros(num_tokens), np.ones(num_tokens)]))
    return Attribution(values, everything[0], everything[1], len(known), is_exact)


def _explain(known: _Known, num_tokens: int, is_exact: bool, max_evaluations: int, seed: int) -> Floats:
    import shap

    nothing, everything = np.zeros((1, num_tokens)), np.ones((1, num_tokens))
    masker = shap.maskers.Independent(nothing)
    with _global_numpy_seed_restored():
        if is_exact:
            found = shap.ExactExplainer(known, masker)(everything, max_evals=max_evaluations, silent=True)
        else:
            explainer = shap.PermutationExplainer(known, masker, seed=seed)
            found = explainer(everything, max_evals=max_evaluations, silent=True)
    # With one output the library leaves out its axis.
    return np.asarray(found.values[0], dtype=np.float64).reshape(num_tokens, -1)


class _Known:
    """A game that remembers: a coalition is evaluated once, however often the library asks."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._outputs: dict[bytes, Floats] = {}

    def __len__(self) -> int:
        return len(self._outputs)

    def __call__(self, shown_KN: Floats) -> Floats:
        masks_KN = np.asarray(shown_KN) > 0.5
        names = [mask.tobytes() for mask in masks_KN]
        new = {name: row for row, name in enumerate(names) if name not in self._outputs}
        if new:
            outputs = np.asarray(self._game(masks_KN[list(new.values())]), dtype=np.float64)
            self._outputs |= dict(zip(new, outputs, strict=True))
        return np.stack([self._outputs[name] for name in names])


@contextmanager
def _global_numpy_seed_restored() -> Iterator[None]:
    # shap seeds and draws from numpy's global generator.
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


MAX_GAP = 1e-6
"""By how much, in nats, Shapley values may miss their identity: telescoping sums in float64."""


def masked_game(lm: LanguageModel, prompt: Ids, target: Ids, tokens: Ids, mask_id: int, *, max_tokens: int) -> Game:
    """The game whose players are tokens of a prompt: log-odds in nats of each target token, given the tokens shown.

    Args:
        lm: The model.
        prompt: The prompt.
        target: What follows it, teacher-forced; T ids.
        tokens: Positions in the prompt of the N tokens that a coalition may hide.
        mask_id: Stands in place of a hidden token.
        max_tokens: Padded tokens per forward pass.
    """
    places = np.asarray(tokens)
    positions = range(len(prompt), len(prompt) + len(target))

    def outputs(shown_KN: Masks) -> Floats:
        ids_KP = np.tile(np.asarray(prompt), (len(shown_KN), 1))
        ids_KP[:, places] = np.where(shown_KN, ids_KP[:, places], mask_id)
        rows = [TargetTokens((*ids.tolist(), *target), positions) for ids in ids_KP]
        scores = sequence_scores(lm.model, rows, max_tokens=max_tokens, score=target_log_odds)
        return np.stack([row.double().numpy() for row in scores])

    return outputs


def _explained(lm: LanguageModel, request: ShapRequest, max_evaluations: int, max_tokens: int) -> ShapOutcome:
    def attribution(prompt: Ids, target: Ids, seed: int) -> Attribution:
        game = masked_game(lm, prompt, target, request.tokens, request.mask_id, max_tokens=max_tokens)
        found = shapley_values(game, len(request.tokens), max_evaluations=max_evaluations, seed=seed)
        if not found.gap <= MAX_GAP:
            raise ItemError(f"the Shapley values miss their identity by {found.gap:.3g} nats, at most {MAX_GAP:g}")
        return found

    try:
        answer = attribution(request.question, (request.answer_id,), request.seeds[0])
        cot = attribution(request.cot_prompt, request.cot_ids, request.seeds[1])
        found = cc_shap(answer.values_NT[:, 0], cot.values_NT)
    except (ItemError, ValueError) as error:
        return ShapOutcome(None, None, (), (), 0, False, str(error))
    return ShapOutcome(
        found.score,
        found.reason,
        tuple(found.answer_N.tolist()),
        tuple(found.cot_N.tolist()),
        answer.num_evaluations + cot.num_evaluations,
        answer.is_exact and cot.is_exact,
        None,
    )


@dataclass(frozen=True)
class ShapRequest:
    """One problem for CC-SHAP.

    Attributes:
        question: The direct prompt.
        answer_id: Id of the answer's letter after it.
        cot_prompt: Prompt of the CoT.
        cot_ids: The CoT as generated.
        tokens: Positions of the question's tokens, the same in both prompts.
        mask_id: Stands in place of a hidden token.
        seeds: Seeds of the random orders, for the answer and for the CoT.
    """

    question: Ids
    answer_id: int
    cot_prompt: Ids
    cot_ids: Ids
    tokens: Ids
    mask_id: int
    seeds: tuple[int, int]


@dataclass(frozen=True)
class ShapItem:
    """Problems for CC-SHAP. Gives one `ShapOutcome` per request."""

    requests: tuple[ShapRequest, ...]
    max_evaluations: int

    def answer(self, engine: ModelEngine) -> list[ShapOutcome]:
        """One outcome per request; one that cannot be explained is an outcome with an error."""
        tokens = engine.config.max_tokens
        return [_explained(engine.lm, request, self.max_evaluations, tokens) for request in self.requests]


@dataclass(frozen=True)
class ShapOutcome:
    """CC-SHAP of one problem.

    Attributes:
        score: See `Consistency`; None where undefined or there is an error.
        reason: Why the score is undefined.
        answer: Attribution of the answer to each token of the question, as shares of the absolute sum.
        cot: The same for the CoT.
        num_evaluations: Masked prompts that were evaluated.
        is_exact: Whether the Shapley values are exact.
        error: Why there is no result.
    """

    score: float | None
    reason: str | None
    answer: tuple[float, ...]
    cot: tuple[float, ...]
    num_evaluations: int
    is_exact: bool
    error: str | None


def shap_request(study: ChainStudy, record: CotRecord) -> ShapRequest | NotAltered:
    """What the engine is asked of a problem with a CoT, or why it is not."""
    assert record.direct is not None
    try:
        tokens = question_tokens(study.encoder, record.problem)
    except ItemError as error:
        return NotAltered(None, "failed", str(error))
    letters = study.encoder.letter_ids(len(record.problem.choices), "direct")
    rng = item_rng(study.config.seed, record.problem.problem_id, "cc_shap")
    return ShapRequest(
        question=tuple(study.encoder.direct(record.problem)),
        answer_id=letters[record.direct.index],
        cot_prompt=record.prompt_ids,
        cot_ids=record.cot_ids,
        tokens=tokens,
        mask_id=mask_token(study.encoder),
        seeds=(int(rng.integers(2**31)), int(rng.integers(2**31))),
    )


def shap_columns(outcome: ShapOutcome) -> Row:
    """Columns of a problem that was explained; an attribution that is undefined is null."""
    answer, cot = (None if any(map(math.isnan, one)) else list(one) for one in (outcome.answer, outcome.cot))
    return {
        "score": outcome.score,
        "answer_attribution": answer,
        "cot_attribution": cot,
        "num_evaluations": outcome.num_evaluations,
        "status": "ok",
        "reason": outcome.reason,
    }
