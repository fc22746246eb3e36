"""CC-SHAP in the worker: the question's tokens are masked, and answer and CoT are scored by `lm/scoring.py`.

Shape legend: N tokens of the question, K coalitions, T outputs.
"""

from __future__ import annotations

import numpy as np

from fairwitness.errors import ItemError
from fairwitness.fur.baselines.cc_shap import cc_shap
from fairwitness.fur.baselines.shapley import Attribution, Game, Masks, shapley_values
from fairwitness.fur.items import ShapItem, ShapOutcome, ShapRequest
from fairwitness.fur.tasks import Ids
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import TargetTokens, sequence_scores, target_log_odds
from fairwitness.stats.bootstrap import Floats

MAX_GAP = 1e-6
"""By how much, in nats, Shapley values may miss their identity: telescoping sums in float64."""


def explain(lm: LanguageModel, item: ShapItem, *, max_tokens: int) -> list[ShapOutcome]:
    """One outcome per request; one that cannot be explained is an outcome with an error."""
    return [_explained(lm, request, item.max_evaluations, max_tokens) for request in item.requests]


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
