"""From a CoT to what is forgotten and what is retained. Token ids are sliced, never made again from text."""

from __future__ import annotations

from collections.abc import Sequence

from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.problems.draws import item_rng


def draw_retain(
    pool: Sequence[tuple[str, Sequence[StepTokens]]],
    problem_id: str,
    cot_step_index: int,
    recipe: RecipeConfig,
    *,
    seed: int,
) -> tuple[StepTokens, ...]:
    """Draws the retain set of a task: one eligible step from each of some other problems.

    Seed, problem and step decide in which order the other problems come; those without an eligible step are passed
    over. So the draw depends neither on the order of the pool nor on the learning rate, and a problem that gets its
    steps later (its CoT failed at first) changes the draws that now reach it and no others. With fewer other problems
    than asked for, all of them are used.

    Args:
        pool: Per problem its id and its eligible steps; a problem without any belongs here too.
        problem_id: The problem whose step is forgotten.
        cot_step_index: That step.
        recipe: `num_retain`; with `retain: reference` one step only, the first of its problem, as the published code.
        seed: Seed of the run.

    Source: FUR §4.1, App. E.
    """
    others = sorted((item for item in pool if item[0] != problem_id), key=lambda item: item[0])
    order = item_rng(seed, problem_id, cot_step_index).permutation(len(others))
    usable = [others[i] for i in order if others[i][1]]
    if recipe.retain == "reference":
        return tuple(steps[0] for _, steps in usable[:1])
    return tuple(
        steps[int(item_rng(seed, problem_id, cot_step_index, name).integers(len(steps)))]
        for name, steps in usable[: recipe.num_retain]
    )
