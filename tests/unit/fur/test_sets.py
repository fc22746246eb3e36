"""Forget and retain sets: steps tile the CoT, words find their tokens, retain draws depend on names alone."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from fairwitness.chains.steps import CotStep, StepTokens, cot_steps
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.sets import draw_retain
from fairwitness.lm.tokens import decode, encode
from tests.helpers.tiny_tokenizers import byte_level_tokenizer, metaspace_tokenizer

PIECES = ["The", " red", " fox", " digs", ".", " Yes", ".", " Owls", " hunt", " 12", " mice", "."]
"""A vocabulary in which the ids of a CoT are its places in this list."""


def spell(ids: Sequence[int]) -> str:
    return "".join(PIECES[i] for i in ids)


def test_hand_worked_steps() -> None:
    first, second, third = cot_steps(spell, range(len(PIECES)))
    assert [step.text for step in (first, second, third)] == ["The red fox digs. ", "Yes. ", "Owls hunt 12 mice."]
    # The space before a word belongs to the word's token, so a token starts the step that its letters are in.
    assert [(s.token_start, s.token_end) for s in (first, second, third)] == [(0, 5), (5, 7), (7, 12)]
    assert first.words == ("red", "fox", "digs")
    assert first.word_positions == ((1,), (2,), (3,))
    assert third.words == ("Owls", "hunt", "12", "mice")
    assert third.word_positions == ((7,), (8,), (9,), (10,))
    assert first.ineligible is None
    assert second.ineligible == "fewer than 2 content words"


def test_hand_worked_context() -> None:
    third = cot_steps(spell, range(len(PIECES)))[2]
    tokens = third.tokens((90, 91, 92), range(len(PIECES)))
    assert tokens.ids == (90, 91, 92, *range(12))
    assert tokens.start == 10
    assert tokens.words == ((10,), (11,), (12,), (13,))
    assert tokens.content == (10, 11, 12, 13)
    assert tokens.positions == (10, 11, 12, 13, 14)
    first = cot_steps(spell, range(len(PIECES)))[0].tokens((90, 91, 92), range(len(PIECES)))
    assert first.ids == (90, 91, 92, 0, 1, 2, 3, 4)
    assert first.start == 3


def test_words_of_several_tokens() -> None:
    pieces = ["Fo", "xes", " d", "ig", " de", "ns", "."]
    (step,) = cot_steps(lambda ids: "".join(pieces[i] for i in ids), range(7))
    # (the tagger takes "dens" for no content word)
    assert dict(zip(step.words, step.word_positions, strict=True)) == {"Foxes": (0, 1), "dig": (2, 3)}


def test_a_token_of_two_steps_belongs_to_the_first() -> None:
    pieces = ["Red foxes dig.", " Owls", " hunt. Bats", " sleep", "."]
    steps = cot_steps(lambda ids: "".join(pieces[i] for i in ids), range(5))
    assert [step.text for step in steps] == ["Red foxes dig. ", "Owls hunt. ", "Bats sleep."]
    assert [(s.token_start, s.token_end) for s in steps] == [(0, 1), (1, 3), (3, 5)]
    # "Bats" has no token of its own: its token says the end of the step before.
    assert steps[2].words == ("sleep",)
    assert steps[2].ineligible == "fewer than 2 content words"


def test_step_without_a_token_of_its_own() -> None:
    pieces = ["Foxes dig. Owls hunt. Bats sleep", "."]
    steps = cot_steps(lambda ids: "".join(pieces[i] for i in ids), range(2))
    assert [s.ineligible for s in steps[1:-1]] == ["no token of its own"]


@pytest.mark.parametrize("make", [byte_level_tokenizer, metaspace_tokenizer])
@pytest.mark.parametrize(
    "text",
    [
        "Foxes dig deep dens. A red fox sleeps in a den.",
        "1. Owls see well.\n2. Mice are small: 3 cm. They hide.",
        "Ein Fuchs schläft 🦊 im Bau. 狐は巣で眠る。 Yes.",
        "   leading space. Dr. Fox, e.g. a vet, works.",
        "no sentence end",
    ],
)
def test_steps_cover_all_characters_and_tokens(make: Callable[[], PreTrainedTokenizerFast], text: str) -> None:
    tokenizer = make()
    ids = encode(tokenizer, text)
    steps = cot_steps(lambda part: decode(tokenizer, part), ids)
    whole = decode(tokenizer, ids)
    assert "".join(step.text for step in steps) == whole
    check_tiles(steps, len(whole), len(ids))


def test_random_tokens_are_covered_too() -> None:
    tokenizer = byte_level_tokenizer()
    draw = random.Random(0)
    for _ in range(20):
        ids = [draw.randrange(len(tokenizer)) for _ in range(draw.randrange(1, 60))]
        whole = decode(tokenizer, ids)
        check_tiles(cot_steps(lambda part: decode(tokenizer, part), ids), len(whole), len(ids))


def check_tiles(steps: Sequence[CotStep], num_chars: int, num_tokens: int) -> None:
    assert [step.index for step in steps] == list(range(len(steps)))
    chars = [(step.char_start, step.char_end) for step in steps]
    tokens = [(step.token_start, step.token_end) for step in steps]
    for spans, end in ((chars, num_chars), (tokens, num_tokens)):
        assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
        assert spans[-1][1] == end
    used = [p for step in steps for word in step.word_positions for p in word]
    assert len(set(used)) == len(used)
    for step in steps:
        assert all(step.token_start <= p < step.token_end for word in step.word_positions for p in word)
        assert len(step.words) == len(step.word_positions)


@pytest.mark.parametrize(
    ("pieces", "by_words", "by_tokens"),
    [
        # One word of four tokens; two words of one token each; two words of three tokens together.
        (("Photo", "syn", "the", "sis", "."), "fewer than 2 content words", None),
        (("Foxes", " sleep", "."), None, "fewer than 3 content tokens"),
        (("Fox", "es", " sleep", "."), None, None),
        (("So", " it", " is", "."), "fewer than 2 content words", "fewer than 3 content tokens"),
    ],
)
def test_eligible_by_words_or_by_tokens(pieces: tuple[str, ...], by_words: str | None, by_tokens: str | None) -> None:
    def spelled(ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in ids)

    (step,) = cot_steps(spelled, range(len(pieces)))
    assert step.ineligible == by_words
    (step,) = cot_steps(spelled, range(len(pieces)), eligible="content_tokens")
    assert step.ineligible == by_tokens


def test_no_ids_give_no_steps() -> None:
    assert cot_steps(spell, ()) == []


def make_pool(number: int, num_steps: int = 3) -> list[tuple[str, list[StepTokens]]]:
    return [(f"p{i}", [StepTokens((i, k), 1, ((1,),)) for k in range(num_steps)]) for i in range(number)]


def owners(drawn: Sequence[StepTokens]) -> list[int]:
    return [step.ids[0] for step in drawn]


def test_retain_is_one_step_of_each_of_some_other_problems() -> None:
    pool = make_pool(9)
    for problem in range(9):
        for index in range(4):
            drawn = draw_retain(pool, f"p{problem}", index, RecipeConfig(num_retain=4), seed=0)
            assert len(drawn) == 4
            assert len(set(owners(drawn))) == 4
            assert problem not in owners(drawn)


def test_retain_does_not_depend_on_the_order_of_the_pool() -> None:
    pool = make_pool(9)
    expected = draw_retain(pool, "p3", 1, RecipeConfig(), seed=0)
    for seed in range(5):
        random.Random(seed).shuffle(pool)
        assert draw_retain(pool, "p3", 1, RecipeConfig(), seed=0) == expected


def test_retain_passes_over_problems_without_a_step() -> None:
    pool = make_pool(9)
    pool[4] = ("p4", [])
    drawn = {problem: owners(draw_retain(pool, f"p{problem}", 0, RecipeConfig(), seed=0)) for problem in range(9)}
    assert all(len(others) == 4 and 4 not in others for others in drawn.values())


def test_a_problem_that_gets_its_steps_later_changes_only_the_draws_that_reach_it() -> None:
    later = make_pool(30)
    before = [(name, [] if name == "p7" else steps) for name, steps in later]
    num_changed = 0
    for problem, index in itertools.product(range(30), range(3)):
        old, new = (draw_retain(pool, f"p{problem}", index, RecipeConfig(), seed=3) for pool in (before, later))
        if 7 in owners(new):
            num_changed += 1
            kept = [step for step in new if step.ids[0] != 7]
            assert list(old[: len(kept)]) == kept
        else:
            assert old == new
    # Four of 29 are drawn: about 12 of the 87 draws of the other problems.
    assert 4 <= num_changed <= 25


def test_retain_depends_on_seed_problem_and_step() -> None:
    pool = make_pool(40)
    draws = [
        draw_retain(pool, problem, index, RecipeConfig(), seed=seed)
        for problem in ("p1", "p2")
        for index in (0, 1)
        for seed in (0, 1)
    ]
    assert len(set(draws)) == len(draws)


def test_retain_is_uniform_over_problems_and_steps() -> None:
    pool = make_pool(6)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        counts.update(step.ids for step in draw_retain(pool, "p0", 0, RecipeConfig(num_retain=1), seed=seed))
    # 15 cells of 100 expected draws each; five standard deviations are 48.
    assert len(counts) == 15
    assert all(abs(value - 100) < 48 for value in counts.values())


def test_fewer_others_than_asked_for() -> None:
    assert sorted(owners(draw_retain(make_pool(3), "p1", 0, RecipeConfig(num_retain=8), seed=0))) == [0, 2]
    assert draw_retain(make_pool(1), "p0", 0, RecipeConfig(), seed=0) == ()


def test_reference_option_retains_one() -> None:
    pool = make_pool(9)
    recipe = RecipeConfig(retain="reference", num_retain=4)
    drawn = draw_retain(pool, "p3", 1, recipe, seed=0)
    # The first problem of the usual draw, and of that problem the first step.
    first = owners(draw_retain(pool, "p3", 1, RecipeConfig(), seed=0))[0]
    assert [step.ids for step in drawn] == [(first, 0)]
    assert draw_retain(make_pool(1), "p0", 0, recipe, seed=0) == ()
