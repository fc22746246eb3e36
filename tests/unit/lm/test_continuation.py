"""Continuations of shared prefixes: the tokens of the same row alone, uncached; stops, limits, seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch

from fairwitness.lm.config import SamplingConfig
from fairwitness.lm.continuation import Branch, Continuation, Settings, Tree, can_share, continue_trees
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode
from tests.helpers.tiny_models import TINY_TYPES

NEW_TOKENS = 12


def drawn(lm: LanguageModel, length: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(10, lm.facts.vocab_size) for _ in range(length))


def trees(lm: LanguageModel) -> list[Tree]:
    """Two prefixes with branches at several places, of several lengths, one without tokens of its own."""
    long, short = drawn(lm, 40, 1), drawn(lm, 5, 2)
    first = [Branch(at, drawn(lm, size, at + size)) for at, size in [(10, 3), (10, 9), (25, 1), (40, 6), (40, 0)]]
    second = [Branch(at, drawn(lm, size, at + size)) for at, size in [(0, 4), (5, 12)]]
    return [Tree(long, tuple(first)), Tree(short, tuple(second))]


@torch.no_grad()
def alone(lm: LanguageModel, tree: Tree, branch: Branch, count: int = NEW_TOKENS) -> list[int]:
    """Greedy decoding of one row, all tokens anew for each token."""
    ids = [*tree.prefix[: branch.at], *branch.ids]
    start = len(ids)
    while len(ids) < start + count:
        logits = lm.model(input_ids=torch.tensor([ids]), use_cache=False).logits
        token = int(logits[0, -1].argmax())
        if token in lm.facts.eos_ids:
            break
        ids.append(token)
    return ids[start:]


def flat(found: Sequence[Sequence[Continuation]]) -> list[Continuation]:
    return [one for row in found for one in row]


@pytest.mark.parametrize("model_type", [*TINY_TYPES, "bloom", "falcon", "mpt", "gpt_neo"])
def test_equals_uncached_decoding_of_each_row_alone(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    found = flat(continue_trees(lm, trees(lm), Settings(NEW_TOKENS)))
    expected = [alone(lm, tree, branch) for tree in trees(lm) for branch in tree.branches]
    assert [list(one.ids) for one in found] == expected
    assert max(map(len, expected)) == NEW_TOKENS


@pytest.mark.parametrize("max_cache_tokens", [1, 120, 10_000])
@pytest.mark.parametrize("share", [True, False])
def test_batches_and_sharing_change_nothing(
    max_cache_tokens: int, share: bool, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm("llama")
    settings = Settings(NEW_TOKENS, max_cache_tokens=max_cache_tokens, share_prefix=share)
    assert continue_trees(lm, trees(lm), settings) == continue_trees(lm, trees(lm), Settings(NEW_TOKENS))


def test_which_architectures_share(tiny_lm: Callable[[str], LanguageModel]) -> None:
    assert can_share(tiny_lm("llama"))
    assert not can_share(tiny_lm("gemma2"))


def test_a_prefix_is_computed_once(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("llama")
    tree = trees(lm)[0]
    fed: list[int] = []
    hook = lm.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        continue_trees(lm, [tree], Settings(1))
    finally:
        hook.remove()
    assert sum(fed) <= len(tree.prefix) + len(tree.branches) * max(len(branch.ids) for branch in tree.branches)


def test_a_stop_ends_a_row_and_is_cut_off(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("llama")
    tree = trees(lm)[0]
    free = alone(lm, tree, tree.branches[0])
    text = decode(lm.tokenizer, free)
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    (found,) = continue_trees(lm, [Tree(tree.prefix, tree.branches[:1])], Settings(NEW_TOKENS, {"tag": (stop,)}))
    assert found[0].finish == "tag"
    kept = decode(lm.tokenizer, found[0].ids)
    assert text.startswith(kept)
    assert stop not in kept
    assert len(found[0].ids) < NEW_TOKENS


def test_limits(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("llama")
    context = lm.facts.context_length
    full = Tree(drawn(lm, context, 1), (Branch(context, ()), Branch(context - 3, (11,)), Branch(0, ())))
    (found,) = continue_trees(lm, [full], Settings(NEW_TOKENS))
    assert found[0].error is not None
    assert "no room in the context" in found[0].error
    assert (found[1].finish, len(found[1].ids)) in {("length", 2), ("eos", 0), ("eos", 1)}
    assert found[2].error == "there is no token to go on from"


@pytest.mark.parametrize("branch", [Branch(6, ()), Branch(-1, (3,))])
def test_a_branch_beyond_its_prefix(branch: Branch, tiny_lm: Callable[[str], LanguageModel]) -> None:
    with pytest.raises(ValueError, match="its prefix has 5 tokens"):
        continue_trees(tiny_lm("llama"), [Tree((1, 2, 3, 4, 5), (branch,))], Settings(1))


def test_samples_depend_on_the_row_s_seed_alone(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("llama")
    sampling = SamplingConfig(temperature=1.5, top_p=0.9)
    prefix = drawn(lm, 8, 3)
    branches = tuple(Branch(8, (11,), seed=seed) for seed in (1, 2, 1))
    (together,) = continue_trees(lm, [Tree(prefix, branches)], Settings(NEW_TOKENS, sampling=sampling))
    assert together[0] == together[2]
    assert together[0] != together[1]
    for branch, expected in zip(branches, together, strict=True):
        (single,) = continue_trees(lm, [Tree(prefix, (branch,))], Settings(NEW_TOKENS, sampling=sampling))
        assert single == [expected]
