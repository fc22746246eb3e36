"""Judges read the CoTs that a finished sweep's models wrote after unlearning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

from fairwitness.analysis.faithfulness import Infeasible
from fairwitness.analysis.judgements import JudgedCell, judged_cells
from fairwitness.analysis.runs import JUDGE_JOB
from fairwitness.errors import ConfigError, InfeasibleError
from fairwitness.experiment.measure import CellLog, Done, Session, Supplies
from fairwitness.followups.config import FurJudgeConfig
from fairwitness.followups.following import Ask, FollowUp, chat_models, seed_of
from fairwitness.followups.judging.pairs import (
    OPTIONAL_VALUES,
    PAIRS_CODE,
    REQUIRED_VALUES,
    CotPair,
    JudgeName,
    Row,
    cot_pairs,
    judging_code,
    replied,
)
from fairwitness.followups.judging.rules import RULES_CODE, ruled, rules_key
from fairwitness.fur.finished import FinishedStudy
from fairwitness.fur.study import FurStudy
from fairwitness.judges.config import RulesConfig
from fairwitness.judges.factory import check_usable
from fairwitness.judges.template import PromptTemplate, load_template
from fairwitness.records.keys import key_of
from fairwitness.records.store import Store, one_of
from fairwitness.text.numbers import shown_rate


class FurJudge(FollowUp[FurJudgeConfig]):
    """Whether the CoT after unlearning argues for another answer than the one before it (FUR §6.3).

    Attributes:
        judged: What the judge found, per model, data set and method, once it has.
        notes: Why studies are not judged, a line each.
    """

    job = JUDGE_JOB
    code = (PAIRS_CODE, RULES_CODE)

    def __init__(self, config: FurJudgeConfig, supplies: Supplies) -> None:
        """Checks the judge, then opens the sweep and finds the pairs.

        Raises:
            InfeasibleError: `lr: selected`, and no rate of the run is feasible.
            FairwitnessError: See `prepare_judge`, `open_finished` and `cell_of`.
        """
        self.template, self.judge = prepare_judge(config)
        super().__init__(config, supplies)
        cells = [(one, cell_of(one, config.lr)) for one in self.finished]
        self.notes = [one.choice.reason for one, key in cells if key is None and isinstance(one.choice, Infeasible)]
        known = [(one, key) for one, key in cells if key is not None]
        if not known:
            reasons = " ".join(self.notes)
            raise InfeasibleError(f"{self.run.path}: {reasons} Name a rate with lr to judge it all the same.")
        self.studies = [one.study for one, _ in known]
        self.cell_keys = [*(key for _, key in known), self.judge.key]
        changed = config.ask == "changed"
        self.pairs = [(one.study, pair) for one, key in known for pair in cot_pairs(one, key, only_changed=changed)]
        self.judged: Sequence[JudgedCell] = ()

    @classmethod
    def work(cls, config: Mapping[str, Any]) -> list[Any]:
        """See `Measure.work`: another judge, or another rate, is no change of the first."""
        judge = config["judge"]
        return [*(judge.get(name) for name in ("kind", "name", "model", "reading", "base_url")), config["lr"]]

    def counts(self, store: Store) -> Counter[str]:
        """Judgements by status."""
        keys = [self.judge.row_key(pair) for _, pair in self.pairs]
        return Counter(store.read("judgements", ["status"], one_of("key", keys))["status"].to_pylist())

    def measure(self, session: Session) -> None:
        """See `Measure.measure`."""
        finished = session.store.finished_keys("judgements")
        left = [(study, pair) for study, pair in self.pairs if self.judge.row_key(pair) not in finished]
        skipped = [
            self.judge.row(study, pair, status="skipped", reason=pair.skipped) for study, pair in left if pair.skipped
        ]
        session.add("judgements", skipped)
        pending = [(study, pair) for study, pair in left if not pair.skipped]
        if pending:
            with ExitStack() as stack:
                rows = self._rows(pending, chat_models(session, stack))
                done = (Done([[row]]) for row in rows)
                session.collect(f"judged by {self.judge.name}", "judgements", len(pending), done)
        row = {"cell_keys": self.cell_keys}
        self.judged = _judged(session.store, row)
        session.log(self.cells(session.store, row))

    def _rows(self, pending: Sequence[tuple[FurStudy, CotPair]], ask: Ask) -> Iterator[Row]:
        judge, limit = self.config.judge, self.config.max_tokens
        if isinstance(judge, RulesConfig):
            yield from (self.judge.row(study, pair, **ruled(pair, judge)) for study, pair in pending)
            return
        assert self.template is not None
        prompts = [pair.prompt(self.template) for _, pair in pending]
        for position, reply in ask(judge).replies(prompts, max_tokens=limit):
            yield self.judge.row(*pending[position], **replied(reply, max_tokens=limit))

    @classmethod
    def cells(cls, store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[CellLog]:
        """See `Measure.cells`; a cell is a judge on one rate of one study."""
        for cell in _judged(store, row, keys):
            params = {name: value for name, value in cell.columns().items() if value is not None}
            totals: dict[str, float] = {f"num_{verdict}": number for verdict, number in cell.verdicts.items()}
            totals |= {f"num_{name}": getattr(cell, f"num_{name}") for name in ("skipped", "failed", "unparsable")}
            shares = {"different": cell.different.value, "different_changed": cell.different_changed.value}
            totals |= {name: value for name, value in shares.items() if value is not None} | {"cost": cell.cost}
            key = key_of(cell=cell.cell_key, judge=cell.judge_key)
            yield CellLog(key, params | {"judge": cell.judge}, {}, totals)


def prepare_judge(config: FurJudgeConfig) -> tuple[PromptTemplate | None, JudgeName]:
    """The question and the judge's name; nothing is loaded or asked.

    Raises:
        ConfigError, ModelError: The judge has no key, the template is broken, or the local model cannot chat.
    """
    if isinstance(config.judge, RulesConfig):
        if config.template is not None:
            raise ConfigError("template: rules are asked no question; remove it, or set another kind of judge")
        return None, JudgeName(config.judge.shown_name, rules_key(config.judge))
    template = load_template("cot_after", config.template, required=REQUIRED_VALUES, optional=OPTIONAL_VALUES)
    model, code = check_usable(config.judge), judging_code("fairwitness.judges.template")
    key = key_of(model=model, template=template.key, max_tokens=config.max_tokens, code=code)
    return template, JudgeName(config.judge.shown_name, key)


def cell_of(finished: FinishedStudy, lr: float | Literal["selected"]) -> str | None:
    """Key of the cell whose CoTs are judged; None where no rate is feasible.

    Raises:
        ConfigError: The sweep has no such rate, or wrote no CoTs after unlearning.
    """
    label, rows = finished.study.label, finished.unlearning
    if not finished.study.config.measure.cot_after:
        raise ConfigError(
            f"{label}: the sweep wrote no CoTs after unlearning; run jobs/fur_sweep.py again with "
            "--set measure.cot_after=true"
        )
    if lr == "selected":
        return None if isinstance(finished.choice, Infeasible) else finished.choice.cell.cell_key
    keys = rows.loc[rows["lr"] == lr, "cell_key"].unique()
    if len(keys) == 0:
        known = ", ".join(shown_rate(rate) for rate in sorted(rows["lr"].dropna().unique()))
        raise ConfigError(f"lr: {label} has no results at {shown_rate(lr)}; its rates are {known or 'none'}")
    return str(keys[-1])


def _judged(store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> list[JudgedCell]:
    wanted = row["cell_keys"]
    cells = wanted if keys is None else keys
    return judged_cells(store, seed=seed_of(store), cell_keys=cells, judge_keys=wanted)
