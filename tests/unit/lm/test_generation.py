"""Greedy generation: against transformers' own, independent of the batch, stopped and cut where it should be."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fairwitness.lm.generation import Generation, completion_end, generate_greedy
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode, encode
from tests.helpers.tiny_models import TINY_TYPES

NEW_TOKENS = 24


def _prompts(lm: LanguageModel, num: int = 5) -> list[list[int]]:
    draw = random.Random(3)
    return [[draw.randrange(10, lm.facts.vocab_size) for _ in range(length)] for length in (3, 17, 8, 25, 11)[:num]]


@pytest.mark.parametrize("model_type", [*TINY_TYPES, "bloom", "falcon", "mpt", "gpt_neo"])
def test_equals_transformers_generate(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    results = generate_greedy(lm, _prompts(lm), NEW_TOKENS, batch_size=5, stop_at_blank_line=False)
    assert max(len(result.ids) for result in results) > NEW_TOKENS // 2
    for prompt, result in zip(_prompts(lm), results, strict=True):
        tokens = torch.tensor([prompt])
        output = lm.model.generate(
            tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW_TOKENS
        )
        expected = output[0, len(prompt) :].tolist()
        assert expected[: len(result.ids)] == list(result.ids)
        rest = [token for token in expected[len(result.ids) :] if token not in lm.facts.eos_ids]
        assert decode(lm.tokenizer, rest).strip() == ""
        assert (result.finish == "eos") == (expected[-1] in lm.facts.eos_ids)


@pytest.mark.parametrize("model_type", [*TINY_TYPES, "bloom", "falcon", "mpt", "gpt_neo"])
def test_rows_do_not_depend_on_the_batch(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    prompts = _prompts(lm)
    alone = generate_greedy(lm, prompts, NEW_TOKENS, batch_size=1)
    assert len({result.ids for result in alone}) > 1
    assert generate_greedy(lm, prompts, NEW_TOKENS, batch_size=2) == alone
    assert generate_greedy(lm, prompts, NEW_TOKENS, batch_size=5) == alone
    assert generate_greedy(lm, prompts, NEW_TOKENS, batch_size=1, preserve_order=True) == alone


class Scripted(torch.nn.Module):
    """Stands in for a decoder: row after row it says what its script says, whatever the prompt."""

    def __init__(self, vocab_size: int, scripts: list[list[int]]) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.scripts = scripts
        self.num_calls = 0
        self.batches: list[int] = []

    def forward(self, *, input_ids, attention_mask, cache, use_cache, logits_to_keep):
        turn = 0 if cache is None else cache
        self.num_calls += 1
        self.batches.append(len(input_ids))
        logits = torch.zeros(len(input_ids), 1, self.vocab_size)
        for row, script in enumerate(self.scripts):
            logits[row, 0, script[min(turn, len(script) - 1)]] = 1.0
        return _Output(logits, turn + 1)


class _Output:
    def __init__(self, logits: torch.Tensor, cache: int) -> None:
        self.logits = logits
        self.cache = cache


def _scripted(lm: LanguageModel, *scripts: list[int]) -> LanguageModel:
    return replace(lm, model=Scripted(lm.facts.vocab_size, list(scripts)))


def _say(lm: LanguageModel, text: str) -> list[int]:
    return encode(lm.tokenizer, text)


def _generate_script(lm: LanguageModel, script: list[int], max_new_tokens: int = 40) -> Generation:
    scripted = _scripted(lm, script)
    return generate_greedy(scripted, [[20, 21]], max_new_tokens, batch_size=1)[0]


def test_stops_at_a_blank_line_and_cuts_it_off(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, " Foxes dig dens"), *_say(tiny_llama, "\n"), *_say(tiny_llama, "\n"), 30, 31]
    result = _generate_script(tiny_llama, script)
    assert result == Generation(tuple(_say(tiny_llama, " Foxes dig dens")), "blank_line")


def test_line_with_spaces_only_is_blank(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, " Foxes"), *_say(tiny_llama, "\n"), *_say(tiny_llama, " "), *_say(tiny_llama, "\n"), 30]
    result = _generate_script(tiny_llama, script)
    assert result == Generation(tuple(_say(tiny_llama, " Foxes")), "blank_line")


def test_token_of_text_and_blank_line_is_kept(tiny_llama: LanguageModel) -> None:
    mixed = _say(tiny_llama, ".\n\n")
    assert len(mixed) == 1
    script = [*_say(tiny_llama, " Foxes dig dens"), *mixed, 30, 31]
    result = _generate_script(tiny_llama, script)
    assert result == Generation((*_say(tiny_llama, " Foxes dig dens"), *mixed), "blank_line")


def test_single_line_break_goes_on(tiny_llama: LanguageModel) -> None:
    text = " Step one.\nStep two"
    script = [*_say(tiny_llama, text), *tiny_llama.facts.eos_ids]
    result = _generate_script(tiny_llama, script)
    assert result == Generation(tuple(_say(tiny_llama, text)), "eos")


def test_blank_line_at_the_start_is_passed_over(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, "\n\n"), *_say(tiny_llama, "1. Foxes"), *_say(tiny_llama, "\n\n"), 30]
    result = _generate_script(tiny_llama, script)
    assert result.finish == "blank_line"
    assert list(result.ids) == script[: len(result.ids)]
    assert decode(tiny_llama.tokenizer, result.ids) == "\n\n1. Foxes"


def test_only_white_space_gives_nothing_and_ends_at_the_limit(tiny_llama: LanguageModel) -> None:
    result = _generate_script(tiny_llama, _say(tiny_llama, "\n"), max_new_tokens=9)
    assert result == Generation((), "length")


def test_eos_at_once_gives_nothing(tiny_llama: LanguageModel) -> None:
    assert _generate_script(tiny_llama, list(tiny_llama.facts.eos_ids)) == Generation((), "eos")


def test_limit_cuts_and_says_so(tiny_llama: LanguageModel) -> None:
    script = _say(tiny_llama, " Foxes dig dens and sleep in them")
    assert _generate_script(tiny_llama, script, max_new_tokens=5) == Generation(tuple(script[:5]), "length")


def test_a_character_of_several_tokens_is_kept_whole(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, " 狐狸"), *_say(tiny_llama, "\n\n"), 30]
    result = _generate_script(tiny_llama, script)
    assert decode(tiny_llama.tokenizer, result.ids) == " 狐狸"


def test_rows_stop_on_their_own(tiny_llama: LanguageModel) -> None:
    short = [*_say(tiny_llama, " Foxes"), *tiny_llama.facts.eos_ids]
    long = [*_say(tiny_llama, " Foxes dig dens"), *_say(tiny_llama, "\n\n")]
    lm = _scripted(tiny_llama, short, long)
    results = generate_greedy(lm, [[20], [20]], 40, batch_size=2)
    assert [result.finish for result in results] == ["eos", "blank_line"]
    assert lm.model.num_calls == max(len(short), len(long))


def test_prompt_without_room_is_a_row_with_a_reason_and_the_rest_goes_on(tiny_llama: LanguageModel) -> None:
    context = tiny_llama.facts.context_length
    prompts = [[20] * 4, [20] * context, [], [21] * (context + 9)]
    for preserve_order in (False, True):
        results = generate_greedy(tiny_llama, prompts, 3, batch_size=4, preserve_order=preserve_order)
        assert results[0] == generate_greedy(tiny_llama, prompts[:1], 3, batch_size=1)[0]
        assert results[1] == Generation(
            (), None, f"prompt of {context} tokens leaves no room in the context of {context}"
        )
        assert results[2] == Generation((), None, "prompt is empty")
        assert results[3].error is not None


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "llama"])
def test_stops_at_the_end_of_the_context(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    draw = random.Random(5)
    nearly_full = [draw.randrange(10, lm.facts.vocab_size) for _ in range(lm.facts.context_length - 4)]
    prompts = [nearly_full, _prompts(lm)[0]]
    together = generate_greedy(lm, prompts, NEW_TOKENS, batch_size=2, stop_at_blank_line=False)
    assert together == generate_greedy(lm, prompts, NEW_TOKENS, batch_size=1, stop_at_blank_line=False)
    assert together[0].finish in ("length", "eos")
    assert len(together[0].ids) <= 4
    assert len(together[1].ids) > 4


def test_preserved_order_is_one_batch_with_every_row_in_place(tiny_llama: LanguageModel) -> None:
    context = tiny_llama.facts.context_length
    scripts = [_say(tiny_llama, word) for word in (" red", " fox", " den")]
    lm = _scripted(tiny_llama, *scripts)
    prompts = [[20, 21], [20] * context, [20] * 7]
    results = generate_greedy(lm, prompts, 1, batch_size=1, preserve_order=True)
    assert results[0].ids == tuple(scripts[0][:1])
    assert results[2].ids == tuple(scripts[2][:1])
    assert lm.model.batches == [3]


def _go_on(lm: LanguageModel, begun: str, script: list[int], max_new_tokens: int = 40) -> Generation:
    """What is generated after a completion that begins with a text."""
    ids = _say(lm, begun)
    scripted = _scripted(lm, script)
    return generate_greedy(scripted, [[20, 21, *ids]], max_new_tokens, batch_size=1, num_begun=[len(ids)])[0]


def test_begun_completion_ends_at_a_blank_line_right_after_its_beginning(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, "\n\n"), *_say(tiny_llama, "1. Foxes")]
    assert _go_on(tiny_llama, " Foxes dig.", script) == Generation((), "blank_line")
    # Without a beginning the blank line is passed over.
    assert _go_on(tiny_llama, "", script, max_new_tokens=len(script)).ids == tuple(script)


def test_begun_completion_sees_a_blank_line_that_its_last_line_break_begins(tiny_llama: LanguageModel) -> None:
    script = [*_say(tiny_llama, "\n"), *_say(tiny_llama, "More")]
    assert _go_on(tiny_llama, " Foxes dig.\n", script) == Generation((), "blank_line")


def test_begun_completion_goes_on_within_the_limit_of_the_whole(tiny_llama: LanguageModel) -> None:
    begun, more = " Foxes dig.", _say(tiny_llama, " They sleep in warm dens and nests")
    num = len(_say(tiny_llama, begun))
    assert _go_on(tiny_llama, begun, more, max_new_tokens=num + 3) == Generation(tuple(more[:3]), "length")
    assert _go_on(tiny_llama, begun, more, max_new_tokens=num) == Generation((), "length")
    assert _go_on(tiny_llama, begun, more, max_new_tokens=num - 2) == Generation((), "length")
    eos = list(tiny_llama.facts.eos_ids)
    assert _go_on(tiny_llama, begun, eos) == Generation((), "eos")


def test_begun_completion_is_the_rest_of_the_whole_one(tiny_llama: LanguageModel) -> None:
    prompts = _prompts(tiny_llama)
    whole = generate_greedy(tiny_llama, prompts, NEW_TOKENS, batch_size=5)
    begun = [min(4, len(w.ids) // 2) for w in whole]
    given = [[*p, *w.ids[:n]] for p, w, n in zip(prompts, whole, begun, strict=True)]
    rest = generate_greedy(tiny_llama, given, NEW_TOKENS, batch_size=2, num_begun=begun)
    assert [r.ids for r in rest] == [w.ids[n:] for w, n in zip(whole, begun, strict=True)]
    assert [r.finish for r in rest] == [w.finish for w in whole]
    assert sum(begun) > 0


def test_nothing_to_do() -> None:
    assert completion_end("") is None
    assert completion_end("\n\n  \n") is None
    assert completion_end("a\n\nb") == 1
    assert completion_end("\n\na\n \t\nb\n\nc") == 3


def test_refuses_senseless_sizes(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        generate_greedy(tiny_llama, [[1]], 0, batch_size=1)
    with pytest.raises(ValueError, match="at least 1"):
        generate_greedy(tiny_llama, [[1]], 1, batch_size=0)
    assert generate_greedy(tiny_llama, [], 1, batch_size=1) == []
    assert generate_greedy(tiny_llama, [], 1, batch_size=1, preserve_order=True) == []


def test_grouped_variants_write_what_each_would_alone(fresh_lm: Callable[[str], LanguageModel]) -> None:
    prompts_per_variant = 2
    lm = fresh_lm("llama")
    prompts = _prompts(lm, 4)
    draw = torch.Generator().manual_seed(0)
    base = {name: weight.detach().clone() for name, weight in lm.ff2_weights().items()}
    noise = [{name: 0.5 * torch.randn(w.shape, generator=draw) for name, w in base.items()} for _ in range(2)]
    alone: list[Generation] = []
    for k, variant in enumerate(noise):
        for name, weight in lm.ff2_weights().items():
            weight.copy_(base[name] + variant[name])
        rows = prompts[k * prompts_per_variant : (k + 1) * prompts_per_variant]
        alone += generate_greedy(lm, rows, NEW_TOKENS, batch_size=1)
    for name, weight in lm.ff2_weights().items():
        weight.copy_(base[name])
    grouped = GroupedFF2.full(lm.model, lm.ff2_names, num_variants=2)
    for weight_K, name in zip(grouped.parameters(), base, strict=True):
        for k, variant in enumerate(noise):
            weight_K.data[k] += variant[name]
    with grouped:
        together = generate_greedy(lm, prompts, NEW_TOKENS, batch_size=1, preserve_order=True)
    assert together == alone
    assert generate_greedy(lm, prompts, NEW_TOKENS, batch_size=1) != alone
