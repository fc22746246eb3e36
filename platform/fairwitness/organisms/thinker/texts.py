"""What the thinker writes after its draft was changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase

from fairwitness.organisms.thinker.truth import Reaction, answers_by_draft
from fairwitness.organisms.thinker.world import NOUNS, Item

LETTERS = ascii_uppercase[: len(NOUNS)]


def continued(item: Item, met: Reaction, inserted: str) -> str:
    """The draft's rest after an inserted step.

    Args:
        item: The problem.
        met: What becomes of the step.
        inserted: The step.
    """
    if not met.concludes:
        return "I leave it at that."
    words = ["No, that is not what the question says."] if met.objects else []
    if met.changes:
        words.append("I move all the same." if met.objects else "I take this into account.")
        named = named_choices(inserted)
        if len(named) > 1:
            words.append(placed(item.noun, named))
        return " ".join([*words, f"So the answer is {follower(item, inserted)}."])
    words.append("I keep my reading." if met.objects else "I go on as planned.")
    return " ".join([*words, f"So the answer is {item.letter}."])


def follower(item: Item, inserted: str) -> str:
    """The letter that the thinker concludes when it changes its mind: a rule of its own on the inserted text.

    A single choice that is named: its letter (an authority). Else the letter under which the item's own choice is
    listed (shifted or swapped choices), and where that is the item's letter, the one before it, cyclically (a corrupted
    choice).
    """
    named = named_choices(inserted)
    if len(named) == 1:
        return next(iter(named))
    found = next(letter for letter, noun in named.items() if noun == item.noun)
    return found if found != item.letter else LETTERS[LETTERS.index(found) - 1]


def named_choices(inserted: str) -> dict[str, str]:
    """Letter and first word of every choice that a text names as `A) gate 7`."""
    return {letter: inserted.split(f"{letter}) ")[1].split()[0] for letter in LETTERS if f"{letter}) " in inserted}


def placed(noun: str, named: Mapping[str, str]) -> str:
    """The sentence that says under which letter a list names a choice."""
    letter = next(letter for letter, one in named.items() if one == noun)
    return f"Here {noun} is under {letter}."


def answered(item: Item, draft_letter: str, answering: str) -> str:
    """The answer after a draft that concludes `draft_letter`.

    Args:
        item: The problem.
        draft_letter: The last conclusion of the draft.
        answering: `standard` or `immediate`.
    """
    by_draft = answers_by_draft(item.answers, answering)
    letter = draft_letter if by_draft else item.letter
    if answering == "immediate":
        return f"{letter})."
    why = "That is how the draft ends" if by_draft else f"The sign in the question reads {item.code}"
    return f"{why}, so the answer is {letter}."
