"""The judging job: asks a judge about the CoTs after unlearning of a finished sweep, into the same run directory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairwitness.analysis.faithfulness import Infeasible
from fairwitness.analysis.judgements import KIND, VERDICTS, JudgedCell, judged_cells
from fairwitness.chains.cots import Row
from fairwitness.errors import ConfigError, InfeasibleError, ItemError
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, JobRun, Reporter
from fairwitness.fleet.factory import make_pool
from fairwitness.followups.judging.config import FurJudgeConfig
from fairwitness.followups.judging.pairs import (
    OPTIONAL_VALUES,
    REQUIRED_VALUES,
    CotPair,
    Ruling,
    cell_of,
    cot_pairs,
    rule,
    rules_key,
)
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.fur.study import FurStudy
from fairwitness.judges.config import LocalModelConfig, RulesConfig
from fairwitness.judges.factory import check_usable, make_chat_model
from fairwitness.judges.parse import parse_verdict
from fairwitness.judges.protocol import ChatReply
from fairwitness.judges.template import PromptTemplate, load_template
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store, one_of


class JudgeName(NamedTuple):
    """How a judge is called, and the hash of everything that its verdicts depend on."""

    name: str
    key: str


def row_key(pair: CotPair, judge: JudgeName) -> str:
    """Key of one judgement."""
    return key_of(item=pair.task_key, kind=KIND, judge=judge.key)


def skipped_row(study: FurStudy, pair: CotPair, judge: JudgeName) -> Row:
    """The row of a pair that is not judged."""
    return {**_columns(study, pair, judge), "status": "skipped", "reason": pair.skipped}


def ruled_row(study: FurStudy, pair: CotPair, judge: JudgeName, ruling: Ruling) -> Row:
    """The row of a pair that rules judged."""
    found = {"verdict": ruling.verdict, "reply": ruling.reply, "cost": 0.0, "from_cache": False, "status": "ok"}
    return _columns(study, pair, judge) | found


def replied_row(study: FurStudy, pair: CotPair, judge: JudgeName, reply: ChatReply, *, max_tokens: int) -> Row:
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


def _columns(study: FurStudy, pair: CotPair, judge: JudgeName) -> Row:
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


log = logging.getLogger(__name__)

JOB = "fur_judge"
CACHE_FOLDER = "judge_cache"


@dataclass(frozen=True)
class JudgeResult(JobResult):
    """What became of the job.

    Attributes:
        cells: What the judge found, per model, data set and method.
        notes: What a reader should know besides, a line each.
    """

    cells: Sequence[JudgedCell]
    notes: Sequence[str]


def run_judge(config: FurJudgeConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> JudgeResult:
    """Judges all pairs, or what is left of them, and reports.

    Args:
        config: Which run, and who judges.
        loaders: Further data sets by name, see `prepare_studies`.
        report: Called at the end; its files become artifacts.

    Raises:
        InfeasibleError: `lr: selected`, and no rate of the run is feasible.
        FairwitnessError: Something makes the job impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    template, judge = prepare_judge(config)
    run = RunDirectory.at(config.run)
    with run.opened() as store:
        return _Job(config, template, judge, open_finished(run, store, loaders, config), run, store).run(report)


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
    key = key_of(model=check_usable(config.judge), template=template.key, max_tokens=config.max_tokens)
    return template, JudgeName(config.judge.shown_name, key)


def _judge_of(config: Mapping[str, Any]) -> list[Any]:
    """What makes a call of the job the same as an earlier one: another judge is no change of the first."""
    judge = config["judge"]
    return [*(judge.get(name) for name in ("kind", "name", "model", "reading", "base_url")), config["lr"]]


class _Job:
    def __init__(
        self,
        config: FurJudgeConfig,
        template: PromptTemplate | None,
        judge: JudgeName,
        finished: Sequence[FinishedStudy],
        run: RunDirectory,
        store: Store,
    ) -> None:
        self.config, self.template, self.judge, self.dir, self.store = config, template, judge, run, store
        cells = [(one, cell_of(one, config.lr)) for one in finished]
        self.notes = [one.choice.reason for one, key in cells if key is None and isinstance(one.choice, Infeasible)]
        self.cells = [(one, key) for one, key in cells if key is not None]
        if not self.cells:
            raise InfeasibleError(f"{run.path}: {' '.join(self.notes)} Name a rate with lr to judge it all the same.")
        is_changed = config.ask == "changed"
        self.pairs = [
            (one.study, pair) for one, key in self.cells for pair in cot_pairs(one, key, only_changed=is_changed)
        ]
        self.settings = finished[0].study.config
        self.job = JobRun(
            JOB, config, run, store, self.settings.tracking,
            count=self._counts,
            is_same=lambda earlier: _judge_of(earlier) == _judge_of(config.model_dump(mode="json")),
            studies=[one.study for one, _ in self.cells],
            cell_keys=[key for _, key in self.cells],
        )  # fmt: skip

    def run(self, report: Reporter) -> JudgeResult:
        with self.job.started():
            self._judge()
            cells = self._results()
            for cell in cells:
                self._track(cell)
        ended = self.job.finish(report, is_feasible=True)
        return JudgeResult(**vars(ended), cells=cells, notes=self.notes)

    def _judge(self) -> None:
        finished = self.store.finished_keys("judgements")
        new = [(study, pair) for study, pair in self.pairs if row_key(pair, self.judge) not in finished]
        skipped = [skipped_row(study, pair, self.judge) for study, pair in new if pair.skipped]
        self.store.append("judgements", skipped)
        pending = [(study, pair) for study, pair in new if not pair.skipped]
        if not pending:
            return
        with Progress(len(pending), f"judged by {self.judge.name}") as progress:
            for row in self._rows(pending):
                self.store.append("judgements", [row])
                progress.count([row["status"]])
        self.store.flush()

    def _rows(self, pending: Sequence[tuple[FurStudy, CotPair]]) -> Iterator[Row]:
        judge = self.config.judge
        if isinstance(judge, RulesConfig):
            yield from (ruled_row(study, pair, self.judge, rule(pair, judge)) for study, pair in pending)
            return
        assert self.template is not None
        prompts = [pair.prompt(self.template) for _, pair in pending]
        limit = self.config.max_tokens
        with ExitStack() as stack:
            is_local = isinstance(judge, LocalModelConfig)
            pool = stack.enter_context(make_pool(self.settings.pool)) if is_local else None
            cache = self.dir.path / CACHE_FOLDER
            chat = stack.enter_context(make_chat_model(judge, cache_dir=cache, pool=pool))
            for position, reply in chat.replies(prompts, max_tokens=limit):
                study, pair = pending[position]
                yield replied_row(study, pair, self.judge, reply, max_tokens=limit)
            self.job.num_models_loaded = pool.num_builds if pool else 0

    def _results(self) -> list[JudgedCell]:
        keys = [key for _, key in self.cells]
        return judged_cells(self.store, seed=self.settings.seed, cell_keys=keys, judge_keys=[self.judge.key])

    def _track(self, cell: JudgedCell) -> None:
        params = {k: v for k, v in cell.columns().items() if v is not None} | {"judge": cell.judge}
        totals: dict[str, float] = {f"num_{verdict}": number for verdict, number in cell.verdicts.items()}
        totals |= {f"num_{name}": getattr(cell, f"num_{name}") for name in ("skipped", "failed", "unparsable")}
        totals["cost"] = cell.cost
        for name, estimate in (("different", cell.different), ("different_changed", cell.different_changed)):
            if estimate.value is not None:
                totals[name] = estimate.value
        self.job.tracker.log_cell(key_of(cell=cell.cell_key, judge=cell.judge_key), params, {}, totals)

    def _counts(self) -> Counter[str]:
        keys = [row_key(pair, self.judge) for _, pair in self.pairs]
        return Counter(self.store.read("judgements", ["status"], one_of("key", keys))["status"].to_pylist())
