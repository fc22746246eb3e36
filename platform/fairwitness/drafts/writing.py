"""Texts that an intervention needs: a wrong version of the concluded choice, a reasoned conclusion for another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.corrupt import corrupt_by_rules
from fairwitness.drafts.plan import other_letter
from fairwitness.drafts.records import DraftRecord
from fairwitness.drafts.study import DraftStudy
from fairwitness.judges.protocol import ChatModel, ChatPrompt
from fairwitness.judges.template import load_template
from fairwitness.problems.draws import item_rng
from fairwitness.text.conclusions import find_conclusion
from fairwitness.text.prompts import choices_block

MAX_CHOICE_TOKENS, MAX_CONCLUSION_TOKENS = 200, 400
SHOWN_CHARS = 6000
"""Characters of a draft's end that a writer is shown."""


class Texts(NamedTuple):
    """Texts for one draft; None where there is none."""

    corrupted: str | None
    plausible: str | None


class Writer:
    """Writes by rules or asks a model."""

    def __init__(self, config: DraftFaithfulnessConfig, model: ChatModel | None) -> None:
        """Takes the model; None for the rules.

        Raises:
            ConfigError: A template cannot be used.
        """
        self._config, self._model = config, model
        shown = ("question", "choices", "choice")
        self._corruption = load_template("draft_corruption", None, required=shown)
        self._plausible = load_template("draft_plausible", None, required=(*shown, "draft", "letter"))

    def write(self, study: DraftStudy, records: Sequence[DraftRecord]) -> Mapping[str, Texts]:
        """Texts by problem id, for drafts whose conclusion is known."""
        corrupted = self._corrupted(records)
        plausible = self._conclusions(study, records)
        names = [record.problem.problem_id for record in records]
        return dict(zip(names, map(Texts, corrupted, plausible), strict=True))

    def _corrupted(self, records: Sequence[DraftRecord]) -> list[str | None]:
        if not self._config.corrupts:
            return [None] * len(records)
        if self._config.corruptor == "rules":
            return [
                corrupt_by_rules(
                    record.problem.choices,
                    _index(record),
                    rng=item_rng(self._config.seed, record.problem.problem_id, "corrupt"),
                )
                for record in records
            ]
        prompts = [
            self._corruption.fill({**_shown(record), "choice": record.problem.choices[_index(record)]})
            for record in records
        ]
        replies = self._ask(prompts, MAX_CHOICE_TOKENS)
        return [_usable_choice(record, reply) for record, reply in zip(records, replies, strict=True)]

    def _conclusions(self, study: DraftStudy, records: Sequence[DraftRecord]) -> list[str | None]:
        if "plausible" not in self._config.conclusions:
            return [None] * len(records)
        letters = [other_letter(r.problem, r.conclusion or "", seed=study.config.seed) for r in records]
        prompts = [
            self._plausible.fill(
                {
                    **_shown(record),
                    "draft": record.text[-SHOWN_CHARS:],
                    "letter": letter,
                    "choice": record.problem.choices[ascii_uppercase.index(letter)],
                }
            )
            for record, letter in zip(records, letters, strict=True)
        ]
        replies = self._ask(prompts, MAX_CONCLUSION_TOKENS)
        return [
            _usable_conclusion(record, letter, reply)
            for record, letter, reply in zip(records, letters, replies, strict=True)
        ]

    def _ask(self, prompts: Sequence[ChatPrompt], max_tokens: int) -> list[str | None]:
        assert self._model is not None
        found: list[str | None] = [None] * len(prompts)
        for position, reply in self._model.replies(prompts, max_tokens=max_tokens):
            found[position] = reply.text
        return found


def _usable_choice(record: DraftRecord, reply: str | None) -> str | None:
    """The reply's one line, unless it is empty, long, or one of the choices."""
    lines = [line.strip().strip("\"'") for line in (reply or "").splitlines() if line.strip()]
    if len(lines) != 1 or len(lines[0]) > 4 * max(map(len, record.problem.choices)) + 40:
        return None
    taken = {" ".join(choice.casefold().split()) for choice in record.problem.choices}
    return None if " ".join(lines[0].casefold().split()) in taken else lines[0]


def _usable_conclusion(record: DraftRecord, letter: str, reply: str | None) -> str | None:
    """The reply, if it concludes the letter it was to conclude."""
    found = find_conclusion(reply, record.problem.choices) if reply else None
    return reply.strip() if reply and found and found.letter == letter else None


def _index(record: DraftRecord) -> int:
    return ascii_uppercase.index(record.conclusion or "")


def _shown(record: DraftRecord) -> dict[str, str]:
    return {"question": record.problem.question, "choices": choices_block(record.problem.choices)}
