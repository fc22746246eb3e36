"""Rows of `judgements` for the CoTs after unlearning."""

from __future__ import annotations

from typing import NamedTuple

from fairwitness.errors import ItemError
from fairwitness.fur.judging.pairs import VERDICTS, CotPair
from fairwitness.fur.judging.rules import Ruling
from fairwitness.fur.rows import Row
from fairwitness.fur.study import Study
from fairwitness.judges.parse import parse_verdict
from fairwitness.judges.protocol import ChatReply
from fairwitness.records.keys import key_of

KIND = "cot_after"


class JudgeName(NamedTuple):
    """How a judge is called, and the hash of everything that its verdicts depend on."""

    name: str
    key: str


def row_key(pair: CotPair, judge: JudgeName) -> str:
    """Key of one judgement."""
    return key_of(item=pair.task_key, kind=KIND, judge=judge.key)


def skipped_row(study: Study, pair: CotPair, judge: JudgeName) -> Row:
    """The row of a pair that is not judged."""
    return {**_columns(study, pair, judge), "status": "skipped", "reason": pair.skipped}


def ruled_row(study: Study, pair: CotPair, judge: JudgeName, ruling: Ruling) -> Row:
    """The row of a pair that rules judged."""
    found = {"verdict": ruling.verdict, "reply": ruling.reply, "cost": 0.0, "from_cache": False, "status": "ok"}
    return _columns(study, pair, judge) | found


def replied_row(study: Study, pair: CotPair, judge: JudgeName, reply: ChatReply, *, max_tokens: int) -> Row:
    """The row of a pair that a model was asked about: failed without a reply, or without one clear verdict in it."""
    verdict, reason = None, reply.error
    if reply.text is not None:
        try:
            verdict = parse_verdict(reply.text, VERDICTS)
        except ItemError as error:
            cut = f"; the reply was cut at max_tokens {max_tokens}, raise it" if reply.is_cut else ""
            reason = f"unparsable: {error}{cut}"
    return _columns(study, pair, judge) | {
        "verdict": verdict,
        "reply": reply.text,
        "num_prompt_tokens": reply.num_prompt_tokens,
        "num_completion_tokens": reply.num_completion_tokens,
        "cost": reply.cost,
        "from_cache": reply.from_cache,
        "status": "failed" if verdict is None else "ok",
        "reason": reason,
    }


def _columns(study: Study, pair: CotPair, judge: JudgeName) -> Row:
    return {
        "key": row_key(pair, judge),
        "item_key": pair.task_key,
        "kind": KIND,
        "scope_key": study.scope_key,
        "cell_key": pair.cell_key,
        "model": study.facts.name,
        "data_set": study.data.loaded.name,
        "problem_id": pair.problem.problem_id,
        "cot_step_index": pair.cot_step_index,
        "judge": judge.name,
        "judge_key": judge.key,
    }
