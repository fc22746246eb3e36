"""Hidden states read and patched through the context manager equal those of plain hooks and of unpadded runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairwitness.errors import ItemError, ModelError
from fairwitness.lm.activations import Patch, hidden_states, read_hidden_states
from fairwitness.lm.decoding import forward_cached
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.inspect import FF2_MODULES
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import pad_right
from tests.helpers.fur_tasks import random_ids
from tests.helpers.tiny_configs import HIDDEN, NUM_LAYERS

LAYERS = (0, 1, 2)
LENGTHS = (9, 4, 13)
WANTED = ((0, 8, 3), (), (12, 5))
ALL = pytest.mark.parametrize("model_type", sorted(FF2_MODULES))
Models = Callable[[str], LanguageModel]


def _texts(lm: LanguageModel, lengths: tuple[int, ...] = LENGTHS, seed: int = 3) -> list[list[int]]:
    draw = random.Random(seed)
    return [list(random_ids(draw, lm.facts.vocab_size, length)) for length in lengths]


def _blocks(lm: LanguageModel) -> nn.ModuleList:
    """The decoder layers, found without their names."""
    lists = [
        module
        for name, module in lm.model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == NUM_LAYERS and "vision" not in name
    ]
    return lists[0]


def _by_plain_hooks(lm: LanguageModel, ids: list[int]) -> tuple[Tensor, Tensor]:
    """States (L, T, D) of layers 0, 1, 2 and logits (T, V) of one text."""
    kept: list[Tensor] = []
    handles = [_blocks(lm)[0].register_forward_pre_hook(lambda _module, args: kept.append(args[0][0]))]
    for block in _blocks(lm):
        handles.append(
            block.register_forward_hook(
                lambda _module, _args, output: kept.append((output[0] if isinstance(output, tuple) else output)[0])
            )
        )
    with torch.no_grad():
        logits_TV = lm.model(input_ids=torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return torch.stack(kept), logits_TV


def _logits(lm: LanguageModel, ids: list[int], *patches: Patch) -> Tensor:
    with torch.no_grad(), hidden_states(lm, patches=patches):
        logits_TV: Tensor = lm.model(input_ids=torch.tensor([ids])).logits[0]
    return logits_TV


def _assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal to 1e-5 of the largest value: states grow from layer to layer."""
    scale = max(1.0, float(expected.abs().amax())) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * scale)


def _left_padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = [[1] * (width - len(row)) + row for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def _hooks(lm: LanguageModel) -> list[int]:
    return [
        len(hooks)
        for module in lm.model.modules()
        for name, hooks in sorted(vars(module).items())
        if name.startswith(("_forward", "_backward")) and "hooks" in name
    ]


@ALL
def test_reading_equals_plain_hooks_and_output_hidden_states(model_type: str, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    (ids,) = _texts(lm, (9,))
    expected_LTD, expected_logits_TV = _by_plain_hooks(lm, ids)
    before = _hooks(lm)
    with torch.no_grad(), hidden_states(lm, layers=LAYERS, positions=[range(9)]) as reading:
        logits_TV = lm.model(input_ids=torch.tensor([ids])).logits[0]
    assert _hooks(lm) == before
    (states_LTD,) = reading.states()
    assert torch.equal(states_LTD, expected_LTD)
    assert torch.equal(logits_TV, expected_logits_TV)
    with torch.no_grad():
        theirs = lm.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    for layer in range(NUM_LAYERS):
        assert torch.equal(states_LTD[layer], theirs[layer][0])
    # Theirs are normalised, ours are not.
    assert not torch.allclose(states_LTD[NUM_LAYERS], theirs[NUM_LAYERS][0], atol=1e-2)


@ALL
def test_padding_batch_and_cache_change_nothing(model_type: str, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    texts = _texts(lm)
    alone = [_by_plain_hooks(lm, ids)[0][:, list(wanted)] for ids, wanted in zip(texts, WANTED, strict=True)]
    unmasked = read_hidden_states(lm, texts, LAYERS, WANTED, max_tokens=1000)
    ids_BT, mask_BT = _left_padded(texts)
    with torch.no_grad(), hidden_states(lm, layers=LAYERS, positions=WANTED) as masked_left:
        forward_cached(lm, ids_BT, mask_BT, None)
    ids_right_BT = pad_right(texts)
    mask_right_BT = torch.tensor([[int(column < length) for column in range(13)] for length in LENGTHS])
    with torch.no_grad(), hidden_states(lm, layers=LAYERS, positions=WANTED) as masked_right:
        forward_cached(lm, ids_right_BT, mask_right_BT, None)
    with torch.no_grad(), hidden_states(lm, layers=LAYERS, positions=WANTED) as in_parts:
        cache: Any = None
        for start, end in ((0, 10), (10, 12), (12, 13)):
            cache = forward_cached(lm, ids_BT[:, start:end], mask_BT[:, :end], cache).cache
    for found in (unmasked, masked_right.states(), masked_left.states(), in_parts.states()):
        for states_LPD, expected_LPD in zip(found, alone, strict=True):
            _assert_close(states_LPD, expected_LPD)


@ALL
@pytest.mark.parametrize("layer", LAYERS)
def test_all_states_of_another_prompt_give_its_logits(model_type: str, layer: int, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    one, other = _texts(lm, (8, 8))
    states_LTD, expected_TV = _by_plain_hooks(lm, other)
    found_TV = _logits(lm, one, Patch(0, layer, range(8), states_LTD[layer]))
    _assert_close(found_TV, expected_TV)
    assert not torch.allclose(_logits(lm, one), expected_TV, atol=1e-2)


@ALL
def test_the_same_states_change_nothing_and_others_only_what_follows(model_type: str, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    (ids,) = _texts(lm, (9,))
    states_LTD, logits_TV = _by_plain_hooks(lm, ids)
    same = [Patch(0, layer, [7, 2], states_LTD[layer, [7, 2]]) for layer in LAYERS]
    nothing = [Patch(0, layer, [1, 4], torch.zeros(HIDDEN), add=True) for layer in LAYERS]
    assert torch.equal(_logits(lm, ids, *same, *nothing), logits_TV)
    wave_D = torch.linspace(-3, 3, HIDDEN).sin() * 5
    for layer in LAYERS:
        found_TV = _logits(lm, ids, Patch(0, layer, [4], wave_D, add=True))
        changed = (found_TV - logits_TV).abs().amax(dim=1).nonzero().flatten().tolist()
        assert changed[0] == 4
        assert (len(changed) > 1) == (layer < NUM_LAYERS)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom", "opt", "gemma3_text", "mpt"])
def test_a_patch_reaches_its_own_row_alone(model_type: str, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    texts = _texts(lm)
    shift_D = torch.arange(HIDDEN) / 10
    patch = Patch(2, 1, [5, 11], shift_D, add=True)
    ids_BT, mask_BT = _left_padded(texts)
    with torch.no_grad(), hidden_states(lm, patches=[patch]):
        found_BV = forward_cached(lm, ids_BT, mask_BT, None).logits[:, -1]
    alone = [_logits(lm, texts[0]), _logits(lm, texts[1])]
    alone.append(_logits(lm, texts[2], Patch(0, 1, [5, 11], shift_D, add=True)))
    _assert_close(found_BV, torch.stack([rows[-1] for rows in alone]))


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "mpt", "falcon"])
def test_generation_with_a_cache_equals_whole_passes(model_type: str, tiny_lm: Models) -> None:
    lm = tiny_lm(model_type)
    prompts = _texts(lm, (7, 5))
    # The second place of row 1 is a token that is generated.
    wave_PD = torch.linspace(-2, 5, 2 * HIDDEN).cos().view(2, HIDDEN) * 4
    changes = [(1, [3, 8], wave_PD), (0, [6], wave_PD[:1].flip(1))]
    expected = []
    for row, ids in enumerate(prompts):
        ids = list(ids)
        for _ in range(6):
            held = [(sum(p < len(ids) for p in places), places, change) for r, places, change in changes if r == row]
            patches = [Patch(0, 1, places[:num], change[:num]) for num, places, change in held]
            ids.append(int(_logits(lm, ids, *patches)[-1].argmax()))
        expected.append(tuple(ids[len(prompts[row]) :]))
    patches = [Patch(row, 1, places, change) for row, places, change in changes]
    with hidden_states(lm, patches=patches):
        found = generate_greedy(lm, prompts, 6, batch_size=1, preserve_order=True, stop_at_blank_line=False)
    assert [generation.ids for generation in found] == expected
    plain = generate_greedy(lm, prompts, 6, batch_size=2, stop_at_blank_line=False)
    assert all(generation.ids != ids for generation, ids in zip(plain, expected, strict=True))


def test_patches_come_in_order_and_before_the_reading(tiny_llama: LanguageModel) -> None:
    (ids,) = _texts(tiny_llama, (6,))
    states_LTD, _ = _by_plain_hooks(tiny_llama, ids)
    seen: list[Tensor] = []

    def double(states_PD: Tensor) -> Tensor:
        seen.append(states_PD.clone())
        return 2 * states_PD

    patches = [
        Patch(0, 1, [4, 2], torch.ones(HIDDEN), add=True),
        Patch(0, 1, [2, 4], double),
        Patch(0, 1, [4], torch.full((1, HIDDEN), 7.0)),
    ]
    with torch.no_grad(), hidden_states(tiny_llama, layers=[1], positions=[[1, 2, 4]], patches=patches) as reading:
        tiny_llama.model(torch.tensor([ids]))
    expected_PD = torch.stack([states_LTD[1, 1], 2 * (states_LTD[1, 2] + 1), torch.full((HIDDEN,), 7.0)])
    assert torch.equal(reading.states()[0][0], expected_PD)
    assert torch.equal(seen[0], states_LTD[1, [2, 4]] + 1)


def test_contexts_nest_with_the_outer_one_first(tiny_llama: LanguageModel) -> None:
    (ids,) = _texts(tiny_llama, (6,))
    states_LTD, plain_TV = _by_plain_hooks(tiny_llama, ids)
    before = _hooks(tiny_llama)
    ones_D = torch.ones(HIDDEN)
    place: dict[str, Any] = {"layers": [1, 2], "positions": [[3]]}
    with torch.no_grad(), hidden_states(tiny_llama, patches=[Patch(0, 1, [3], ones_D, add=True)], **place) as outer:
        with hidden_states(tiny_llama, patches=[Patch(0, 1, [3], lambda states_PD: 3 * states_PD)], **place) as inner:
            tiny_llama.model(torch.tensor([ids]))
        num_outer = sum(_hooks(tiny_llama))
    assert sum(before) < num_outer
    assert _hooks(tiny_llama) == before
    assert torch.equal(outer.states()[0][0, 0], states_LTD[1, 3] + 1)
    assert torch.equal(inner.states()[0][0, 0], 3 * (states_LTD[1, 3] + 1))
    assert torch.equal(outer.states()[0][1], inner.states()[0][1])
    assert torch.equal(_logits(tiny_llama, ids), plain_TV)


def test_a_patch_changes_no_tensor_that_another_hook_holds(tiny_llama: LanguageModel) -> None:
    (ids,) = _texts(tiny_llama, (6,))
    states_LTD, _ = _by_plain_hooks(tiny_llama, ids)
    held: list[Tensor] = []
    handle = _blocks(tiny_llama)[0].register_forward_hook(lambda _module, _args, output: held.append(output))
    _logits(tiny_llama, ids, Patch(0, 1, [2], torch.zeros(HIDDEN)))
    handle.remove()
    assert torch.equal(held[0][0], states_LTD[1])


def test_only_what_was_asked_for_is_kept_in_its_order(tiny_llama: LanguageModel) -> None:
    texts = _texts(tiny_llama)
    ids_BT, mask_BT = _left_padded(texts)
    with torch.no_grad(), hidden_states(tiny_llama, layers=[2, 0, 2], positions=[[1], [], [3, 0, 3]]) as reading:
        forward_cached(tiny_llama, ids_BT, mask_BT, None)
    _, none_LPD, some_LPD = reading.states(as_is=True)
    assert none_LPD.shape == (3, 0, HIDDEN)
    assert some_LPD.untyped_storage().nbytes() == 3 * 3 * HIDDEN * 4
    expected_LTD, _ = _by_plain_hooks(tiny_llama, texts[2])
    _assert_close(some_LPD, expected_LTD[[2, 0, 2]][:, [3, 0, 3]])


def test_the_last_call_that_held_a_position_counts(tiny_llama: LanguageModel) -> None:
    first, second = _texts(tiny_llama, (5, 7))
    with torch.no_grad(), hidden_states(tiny_llama, layers=[1], positions=[[4, 6]]) as reading:
        tiny_llama.model(torch.tensor([second]))
        tiny_llama.model(torch.tensor([first]))
    expected = [_by_plain_hooks(tiny_llama, first)[0][1, 4], _by_plain_hooks(tiny_llama, second)[0][1, 6]]
    assert torch.equal(reading.states()[0][0], torch.stack(expected))


def test_bfloat16_is_read_exactly_and_put_back_exactly(fresh_lm: Models) -> None:
    lm = fresh_lm("qwen2")
    lm.model.to(torch.bfloat16)
    (ids,) = _texts(lm, (6,))
    states_LTD, logits_TV = _by_plain_hooks(lm, ids)
    with torch.inference_mode(), hidden_states(lm, layers=LAYERS, positions=[range(6)]) as reading:
        lm.model(torch.tensor([ids]))
    (as_is_LTD,), (wide_LTD,) = reading.states(as_is=True), reading.states()
    assert as_is_LTD.dtype == torch.bfloat16
    assert wide_LTD.dtype == torch.float32
    assert torch.equal(as_is_LTD, states_LTD)
    assert torch.equal(wide_LTD, states_LTD.float())
    patches = [Patch(0, layer, range(6), wide_LTD[layer].double()) for layer in LAYERS]
    assert torch.equal(_logits(lm, ids, *patches), logits_TV)
    # The sum is rounded once: 1 + 2^-9 of float32 would be lost if the change were cast first.
    small_D = torch.full((HIDDEN,), 1 + 2**-9)
    with torch.inference_mode():
        added = Patch(0, 2, [5], small_D, add=True)
        with hidden_states(lm, layers=[2], positions=[[5]], patches=[added]) as reading:
            lm.model(torch.tensor([ids]))
    assert torch.equal(reading.states()[0][0, 0], (states_LTD[2, 5].float() + small_D).bfloat16().float())


def test_states_of_inference_mode_can_be_trained_on(tiny_llama: LanguageModel) -> None:
    with torch.inference_mode():
        (states_LPD,) = read_hidden_states(tiny_llama, _texts(tiny_llama, (6,)), [1], [[2, 3]], max_tokens=50)
    probe = nn.Linear(HIDDEN, 2)
    probe(states_LPD).sum().backward()
    torch.testing.assert_close(probe.weight.grad, states_LPD.sum(dim=(0, 1)).expand(2, -1))
    assert not states_LPD.requires_grad


def test_a_gradient_runs_through_a_patch(tiny_llama: LanguageModel) -> None:
    (ids,) = _texts(tiny_llama, (6,))
    change_D = torch.zeros(HIDDEN, requires_grad=True)
    with hidden_states(tiny_llama, layers=[1], positions=[[3]], patches=[Patch(0, 0, [3], change_D, add=True)]) as seen:
        tiny_llama.model(torch.tensor([ids])).logits[0, -1, 5].backward()
    assert not seen.states()[0].requires_grad
    direction_D = torch.linspace(-1, 1, HIDDEN) * 1e-2
    ends = [_logits(tiny_llama, ids, Patch(0, 0, [3], sign * direction_D, add=True))[-1, 5] for sign in (1, -1)]
    assert change_D.grad is not None
    torch.testing.assert_close(change_D.grad @ direction_D, (ends[0] - ends[1]) / 2, rtol=2e-2, atol=1e-4)


def test_whole_texts_in_any_batches(tiny_llama: LanguageModel) -> None:
    texts = _texts(tiny_llama, (5, 11, 3, 8, 6))
    wanted = [[4], [0, 10], [], [7, 1, 2], [5]]
    expected = [_by_plain_hooks(tiny_llama, ids)[0][[1, 2]][:, row] for ids, row in zip(texts, wanted, strict=True)]
    for max_tokens in (1, 12, 500):
        found = read_hidden_states(tiny_llama, texts, [1, 2], wanted, max_tokens=max_tokens)
        for states_LPD, expected_LPD in zip(found, expected, strict=True):
            _assert_close(states_LPD, expected_LPD)
    assert read_hidden_states(tiny_llama, [], [1], [], max_tokens=9) == []


class _Broken(Exception):
    pass


def _fail(_states_PD: Tensor) -> Tensor:
    raise _Broken


@contextmanager
def _leaves_no_hook(lm: LanguageModel) -> Any:
    before = _hooks(lm)
    yield
    assert _hooks(lm) == before


def test_no_hook_stays_after_an_error(tiny_llama: LanguageModel) -> None:
    (ids,) = _texts(tiny_llama, (6,))
    ids_BT = torch.tensor([ids])

    with _leaves_no_hook(tiny_llama):
        with pytest.raises(_Broken), hidden_states(tiny_llama, layers=LAYERS, positions=[[0]]):
            raise _Broken
        with pytest.raises(_Broken), hidden_states(tiny_llama, patches=[Patch(0, 1, [0], _fail)]):
            tiny_llama.model(ids_BT)
        with pytest.raises(ItemError), hidden_states(tiny_llama, layers=[0], positions=[[6]]):
            tiny_llama.model(ids_BT)
        with pytest.raises(ModelError), hidden_states(tiny_llama, layers=[0, 9], positions=[[0]]):
            pass
    # A context that outlived an error inside the model goes on as if it had not been there.
    with torch.no_grad(), hidden_states(tiny_llama, layers=[1], positions=[[2]]) as reading:
        with pytest.raises(_Broken), hidden_states(tiny_llama, patches=[Patch(0, 1, [0], _fail)]):
            tiny_llama.model(ids_BT)
        tiny_llama.model(ids_BT)
    assert torch.equal(reading.states()[0][0, 0], _by_plain_hooks(tiny_llama, ids)[0][1, 2])


def _refused(lm: LanguageModel, error: type[Exception], message: str, ids_BT: Any, **asked: Any) -> None:
    """The error comes on entering (no ids) or by the call, and no hook stays."""
    with _leaves_no_hook(lm), pytest.raises(error, match=message), hidden_states(lm, **asked):
        lm.model(ids_BT)


def test_what_is_not_there_is_named(tiny_llama: LanguageModel) -> None:
    lm, ids_BT, zeros_D = tiny_llama, torch.tensor(_texts(tiny_llama, (6, 6))), torch.zeros(HIDDEN)
    for layer in (-1, 3):
        message = rf"layer {layer} was asked for; tiny-llama has layers 0 \(the embedding\) to 2"
        _refused(lm, ModelError, message, None, layers=[layer], positions=[[0]])
        _refused(lm, ModelError, message, None, patches=[Patch(0, layer, [0], zeros_D)])
    negative = "position -1 of row 1 was asked for; positions count from 0"
    _refused(lm, ItemError, negative, None, layers=[1], positions=[[0], [3, -1]])
    beyond = "position 6 of row 1 was asked for; the calls held its positions 0 to 5"
    _refused(lm, ItemError, beyond, ids_BT, layers=[1], positions=[[5], [6]])
    _refused(lm, ItemError, beyond, ids_BT, patches=[Patch(1, 1, [6], zeros_D)])
    row = "row 2 was asked for; the call has 2 rows"
    _refused(lm, ValueError, row, ids_BT, layers=[1], positions=[[0], [0], [0]])
    _refused(lm, ValueError, "row -1 was asked for", None, patches=[Patch(-1, 1, [0], zeros_D)])
    with pytest.raises(ItemError, match="position 9 of text 1 was asked for; it has 6 tokens"):
        read_hidden_states(lm, ids_BT.tolist(), [1], [[2], [9]], max_tokens=50)
    none = "position 0 of row 0 was asked for; the calls held none of its tokens"
    with pytest.raises(ItemError, match=none), hidden_states(lm, layers=[1], positions=[[0]]) as reading:
        reading.states()
    with pytest.raises(ItemError, match=none), hidden_states(lm, layers=[1], positions=[[0]]):
        pass


def test_what_does_not_fit_is_refused(tiny_llama: LanguageModel) -> None:
    lm, ids_BT = tiny_llama, torch.tensor(_texts(tiny_llama, (6,)))
    shapes = rf"layer 1 has shape \(3, {HIDDEN}\); \({HIDDEN},\) or \(2, {HIDDEN}\) is needed"
    _refused(lm, ValueError, shapes, ids_BT, patches=[Patch(0, 1, [0, 1], torch.zeros(3, HIDDEN))])
    turned = rf"turned states \(1, {HIDDEN}\) into \({HIDDEN},\)"
    _refused(lm, ValueError, turned, ids_BT, patches=[Patch(0, 1, [0], lambda states_PD: states_PD[0])])
    place: dict[str, Any] = {"layers": [1], "positions": [[0]]}
    with pytest.raises(ModelError, match="does not number the tokens"), hidden_states(lm, **place):
        lm.model(ids_BT, attention_mask=torch.ones(1, 1, 6, 6, dtype=torch.bool))
    with hidden_states(lm, **place):
        lm.model(ids_BT)
        with pytest.raises(RuntimeError, match="a part of it was called alone"):
            lm.model.base_model(ids_BT)
        with pytest.raises(_Broken), hidden_states(lm, patches=[Patch(0, 1, [0], _fail)]):
            lm.model(ids_BT)
        with pytest.raises(RuntimeError, match="a part of it was called alone"):
            lm.model.base_model(ids_BT)


def test_a_cached_prefix_is_not_there(tiny_llama: LanguageModel) -> None:
    lm, ids_BT = tiny_llama, torch.tensor(_texts(tiny_llama, (6,)))
    mask_BT = torch.ones_like(ids_BT)
    with torch.no_grad():
        cache = forward_cached(lm, ids_BT[:, :4], mask_BT[:, :4], None).cache
        message = "position 3 of row 0 was asked for; the calls held its positions 4 to 5"
        with pytest.raises(ItemError, match=message), hidden_states(lm, layers=[1], positions=[[3]]):
            forward_cached(lm, ids_BT[:, 4:], mask_BT, cache)
        # Without a mask the cache says where the tokens stand.
        cache = lm.model(ids_BT[:, :4], use_cache=True).cache
        with hidden_states(lm, layers=LAYERS, positions=[[4, 5]]) as reading:
            lm.model(ids_BT[:, 4:], cache=cache, use_cache=True)
    expected_LTD, _ = _by_plain_hooks(lm, ids_BT[0].tolist())
    _assert_close(reading.states()[0], expected_LTD[:, 4:])
