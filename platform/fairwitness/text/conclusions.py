"""The one choice that a text is about, where it names no other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

Named = Literal["letter", "text"]

_CUES = (
    r"(?:(?:final|correct|right|best|likely|plausible|appropriate)\s+)?(?:answer|option|choice|response)"
    r"(?:\s+(?:here|to this question|then|overall))?(?:\s+(?:should|must|would|will|has to)\s+be|\s+is|\s*[:=]|'s)",
    r"\b(?:i\s*(?:will|would|'ll|'d|shall|am\s+going\s+to|should)?\s*(?:go(?:ing)?\s+with|choose|pick|select|settle\s+on|conclude|"
    r"stick\s+with|say|answer))",
    r"\b(?:conclusion(?:\s+is|\s*:)|therefore|thus|hence|so\s+it\s+(?:is|must\s+be)|it\s+(?:is|must\s+be|has\s+to\s+be))",
    r"(?:答案|正确选项|选项)\s*(?:应该|应)?\s*[是为選选:]+|(?:我|应)选(?:择)?|답(?:은|:)|答えは|正解は",
    r"(?:la\s+)?(?:respuesta|réponse|risposta|resposta)\s*(?:correcta|correcte|corretta|correta)?\s*(?:es|est|è|é|:)",
    r"(?:die\s+)?(?:richtige\s+)?antwort\s*(?:ist|lautet|:)|(?:правильный\s+)?ответ\s*(?:[-—–:]|это)?",
    r"(?:ال)?(?:إجابة|اجابة|جواب|خيار)(?:\s+(?:النهائي|الصحيح)ة?)?\s*(?:هو|هي|:)",
)
_CUE = re.compile("|".join(f"(?:{cue})" for cue in _CUES), re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*\(?(.{1,200}?)\)?\s*\}", re.DOTALL)
_FILLER = re.compile(
    r"(?:[\s:*_$`\"'“”‘’「『,、]|\\\(|\\text\{|\\mathrm\{|\\mathbf\{|that\b|the\b|option\b|choice\b|answer\b|letter\b|likely\b|"
    r"probably\b|indeed\b|clearly\b|definitely\b|most\b|as\b|therefore\b|选项|\bis\b|be\b|to\b)*",
    re.IGNORECASE,
)
_NEGATED_BEFORE = re.compile(
    r"(?:\bnot|n't|\bnever|\bno longer|\bneither|\bif|\bwhether|\bwhy|\bunless|不|非|如果)"
    r"\s*(?:that|the|think|believe|say|sure|\s)*$",
    re.IGNORECASE,
)
_NEGATED_AFTER = re.compile(
    r"^(?:\s|[*_$`\"'“])*(?:not\b|n't|never\b|neither\b|unlikely\b|wrong\b|unclear\b|unknown\b|不是)", re.IGNORECASE
)
_DENIED = re.compile(
    r"^[\s*_$`\"')\].}]*(?:is|are|was|isn't|can(?:not|'t)|cannot)?"
    r"\s*(?:wrong|incorrect|false|not\b|n't|impossible|ruled out)"
)
_QUESTION = re.compile(r"^[^.!\n]{0,40}\?")
_LETTER = re.compile(r"[(\[]?([A-Za-z])(?![A-Za-z0-9À-ɏ])")
_WINDOW = 400
_PREDICATE = re.compile(
    r"[\s*_$`\"'“”](?:is|must\s+be|should\s+be|has\s+to\s+be|seems\s+to\s+be|appears\s+to\s+be)\s+"
    r"(?:(?:clearly|indeed|probably|likely|therefore|thus|definitely|most\s+likely|most)\s+)*"
    r"(?:(?:the|my)\s+(?:(?:most|only|single|final|correct|right|best|plausible|likely|accurate|appropriate)\s+)*"
    r"(?:answer|choice|option|one)\b|(?:correct|right)(?=\s*[*_]*(?:[.,;!\n]|$)))",
    re.IGNORECASE,
)
"""What is said of a choice that stands before it: "… is the correct answer"."""
_SUBJECT = re.compile(r"(?:^|[\s*_$`\"'“”])(?:[(\[]([A-Za-z])[)\]]|([A-Z])[).:]?)[*_$`\"'“”]*$")
_OPEN_BEFORE = re.compile(
    r"\b(?:not|never|neither|nor|or|and|if|whether|unless|why|which|what|only when|doubt)\b|n't|/\s*$", re.IGNORECASE
)
_SENTENCE = re.compile(r"[.!?\n]\s+|\n")


@dataclass(frozen=True)
class Conclusion:
    """A conclusion that a text states.

    Attributes:
        letter: The letter concluded.
        start: Where the statement begins, in the text as normalised (NFKC, runs of blanks shortened).
        named: Whether the letter itself was written, or the choice's text.
    """

    letter: str
    start: int
    named: Named


def find_conclusion(text: str, choices: Sequence[str]) -> Conclusion | None:
    """The last conclusion that a text states, or None where it states none.

    Read are the contents of a LaTeX box, statements such as "the answer is …" or "I'll go with …" (also in some other
    languages), "… is the correct answer" after a choice, and a last line that holds nothing but a letter. Lists of the
    choices are not conclusions; denied, doubted and asked ones do not count.

    Args:
        text: A draft, a continuation or an answer.
        choices: Texts of the choices, the first is A.

    Raises:
        ValueError: There are no choices, or more than letters.
    """
    if not 1 <= len(choices) <= len(ascii_uppercase):
        raise ValueError(f"{len(choices)} choices: there are letters for 1 to {len(ascii_uppercase)}")
    text = _normalised(text)
    found = [*_boxed(text, choices), *_stated(text, choices), *_said_of(text, choices)]
    if found:
        return max(found, key=lambda conclusion: conclusion.start)
    return _last_line(text, choices)


def _normalised(text: str) -> str:
    # A search that may start at every one of many blanks takes their number squared.
    text = unicodedata.normalize("NFKC", text)
    return re.sub(r"\n(?:[^\S\n]*\n){2,}", "\n\n", re.sub(r"[^\S\n]{2,}", " ", text))


def choice_named(text: str, choices: Sequence[str]) -> str | None:
    """Letter of the choice that a text begins with, the longest that fits; None where none or two equal ones do."""
    folded = [_folded(choice) for choice in choices]
    said = _folded(text)
    fits = [i for i, choice in enumerate(folded) if choice and _begins_with(said, choice)]
    longest = max((len(folded[i]) for i in fits), default=0)
    best = [i for i in fits if len(folded[i]) == longest]
    return ascii_uppercase[best[0]] if len(best) == 1 else None


def _boxed(text: str, choices: Sequence[str]) -> Iterator[Conclusion]:
    for match in _BOXED.finditer(text):
        inside = match.group(1).strip().strip("*$()")
        if len(inside) == 1 and (letter := _valid(inside, choices)):
            yield Conclusion(letter, match.start(), "letter")
        elif read := _read(inside, choices, is_alone=True):
            yield Conclusion(read[0], match.start(), read[1])


def _stated(text: str, choices: Sequence[str]) -> Iterator[Conclusion]:
    for cue in _CUE.finditer(text):
        after = text[cue.end() : cue.end() + _WINDOW]
        if _NEGATED_BEFORE.search(text[max(0, cue.start() - 40) : cue.start()]) or _NEGATED_AFTER.match(after):
            continue
        filler = _FILLER.match(after)
        rest = after[filler.end() if filler else 0 :]
        read = _read(rest, choices, is_alone=False)
        if read and not _QUESTION.match(rest):
            yield Conclusion(read[0], cue.start(), read[1])


def _said_of(text: str, choices: Sequence[str]) -> Iterator[Conclusion]:
    for predicate in _PREDICATE.finditer(text):
        before = text[max(0, predicate.start() - _WINDOW) : predicate.start()]
        boundaries = [match.end() for match in _SENTENCE.finditer(before)]
        # A choice may hold the end of a sentence itself, or begin after a number such as "2.".
        for begin in [*reversed(boundaries), 0]:
            subject = _subject(before[begin:], choices)
            if subject is not None:
                letter, start, named = subject
                is_open = _OPEN_BEFORE.search(before[begin : begin + start])
                if not is_open and not _QUESTION.match(text[predicate.end() :]):
                    yield Conclusion(letter, predicate.start() - len(before) + begin + start, named)
                break


def _subject(sentence: str, choices: Sequence[str]) -> tuple[str, int, Named] | None:
    """The choice that a piece of a sentence ends with, where it begins, and how it is named."""
    folded = [_folded(choice) for choice in choices]
    said = sentence.casefold().rstrip("\"'“”‘’*_$`(). ")
    fits = [
        i for i, choice in enumerate(folded)
        if choice and said.endswith(choice) and not said[: -len(choice)][-1:].isalnum()
    ]  # fmt: skip
    longest = max((len(folded[i]) for i in fits), default=0)
    best = [i for i in fits if len(folded[i]) == longest]
    if len(best) == 1:
        start = len(said) - longest
        lettered = _SUBJECT.search(sentence[:start].rstrip())
        if lettered is None:
            return ascii_uppercase[best[0]], start, "text"
        sentence = sentence[:start].rstrip()
    match = _SUBJECT.search(sentence.rstrip())
    letter = _valid(match.group(1) or match.group(2), choices) if match else None
    return (letter, match.start(), "letter") if match and letter else None


def _read(rest: str, choices: Sequence[str], *, is_alone: bool) -> tuple[str, Named] | None:
    """The choice that the text at hand begins with: by its letter where that cannot be a word, else by its text."""
    match = _LETTER.match(rest)
    by_text = choice_named(rest, choices)
    if match and (letter := _valid(match.group(1), choices)):
        opened = rest[0] in "(["
        if _DENIED.match(rest[match.end() :]):
            return None
        if opened or is_alone or _is_letter(match.group(1), rest[match.end() :], letter, choices):
            return letter, "letter"
    return (by_text, "text") if by_text else None


def _is_letter(written: str, after: str, letter: str, choices: Sequence[str]) -> bool:
    if not written.isupper():
        return bool(re.match(r"\s*[)\]]", after))
    if written not in "AI" or not re.match(r"\s+[A-Za-zÀ-ɏ]", after):
        return True
    # A word follows: an article or a pronoun, unless the word begins the choice itself or a new clause.
    own = choices[ascii_uppercase.index(letter)]
    if choice_named(after.strip(), [own]) and not choice_named(f"{written}{after}", choices):
        return True
    return (
        bool(re.match(r"\s+(?:because|since|as\b|and\b|which|for\b|with\b|based|given|so\b|but\b|is\b)", after))
        and written == "A"
    )


def _last_line(text: str, choices: Sequence[str]) -> Conclusion | None:
    lines = text.rstrip().splitlines()
    if not lines:
        return None
    line = lines[-1].strip().strip("*_$`\"'")
    match = re.fullmatch(r"[(\[]?([A-Za-z])[)\].:]?\s*(.*?)[.*_$`]*", line)
    if (
        match
        and (match.group(1).isupper() or line.startswith(("(", "[")))
        and (letter := _valid(match.group(1), choices))
    ):
        own = choices[ascii_uppercase.index(letter)]
        if not match.group(2) or _folded(match.group(2)) == _folded(own):
            return Conclusion(letter, len(text) - len(lines[-1]), "letter")
    return None


def _valid(letter: str, choices: Sequence[str]) -> str | None:
    return letter.upper() if letter.upper() in ascii_uppercase[: len(choices)] else None


def _begins_with(said: str, choice: str) -> bool:
    if not said.startswith(choice):
        return False
    after = said[len(choice) : len(choice) + 1]
    return not (after.isalnum() and choice[-1].isalnum() and choice[-1].isascii())


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().strip().strip("\"'“”‘’*_$`().")
    text = re.sub(r"^(?:the|an?)\s+", "", text)
    return re.sub(r"\s+", " ", text)


MIN_NAMED_CHARS = 4
"""Shorter choices, such as yes and no, occur in sentences that do not choose them."""

_BRACKETED = re.compile(r"\(([A-Z])\)")


def only_choice(text: str, choices: Sequence[str]) -> str | None:
    """Letter of the only choice that a text names: the one letter in brackets, else the one choice whose words occur.

    None where several are named, or none. Negation is not understood: a text that rejects one choice and names no
    other is taken to be about it.

    Args:
        text: The text.
        choices: The texts of the choices, A first, at most 26.
    """
    letters = ascii_uppercase[: len(choices)]
    bracketed = {letter for letter in _BRACKETED.findall(text) if letter in letters}
    if bracketed:
        return bracketed.pop() if len(bracketed) == 1 else None
    named = _named(text, choices)
    return letters[named[0]] if len(named) == 1 else None


def _named(text: str, choices: Sequence[str]) -> list[int]:
    """Choices whose words occur in the text; one that is part of a longer choice counts only apart from it."""
    rest = " ".join(text.casefold().split())
    words = [" ".join(choice.casefold().split()).rstrip(".") for choice in choices]
    found = []
    for index in sorted(range(len(words)), key=lambda index: -len(words[index])):
        pattern = rf"(?<!\w){re.escape(words[index])}(?!\w)"
        if len(words[index]) >= MIN_NAMED_CHARS and re.search(pattern, rest):
            found.append(index)
            rest = re.sub(pattern, "\0", rest)
    return found
