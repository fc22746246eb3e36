"""Other measures of faithfulness on a finished sweep, beside FUR: answers after changed CoTs, and CC-SHAP."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from fairwitness.analysis.runs import BASELINES_JOB
from fairwitness.chains.client import engine_spec
from fairwitness.chains.cots import COTS_PER_ITEM, QUESTIONS_PER_ITEM, CotRecord
from fairwitness.chains.items import AnswerItem, CotItem, CotRequest, Question
from fairwitness.experiment.measure import Session, Stage, Supplies
from fairwitness.fleet.pool import Outcome
from fairwitness.followups.baselines.cc_shap import ShapItem, ShapRequest, shap_columns, shap_request
from fairwitness.followups.baselines.changes import Altered, StepText, answer_columns, answer_requests
from fairwitness.followups.baselines.rows import NotAltered, Place, Row
from fairwitness.followups.baselines.texts import (
    TEXTS_CODE,
    FileWriter,
    JudgeWriter,
    ProblemTexts,
    Purpose,
    RuleWriter,
    StepWriter,
)
from fairwitness.followups.config import (
    AddMistakeConfig,
    BaselineConfig,
    CcShapConfig,
    FillerTokensConfig,
    FurBaselinesConfig,
    JudgeTexts,
    ParaphraseConfig,
    RuleTexts,
    Texts,
)
from fairwitness.followups.following import Ask, FollowUp, chat_models
from fairwitness.fur.finished import FinishedStudy
from fairwitness.fur.schedule import DISAGREE, LATER
from fairwitness.fur.study import FurStudy
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.records.run_dir import of_run
from fairwitness.records.store import Store, one_of

log = logging.getLogger(__name__)

CHANGES_CODE, SHAP_CODE = "fairwitness.followups.baselines.changes", "fairwitness.followups.baselines.cc_shap"
PROBLEMS_PER_SHAP_ITEM = 1
"""One problem already is a batch of hundreds of masked prompts."""
NO_COT, DISAGREEING = "no CoT", "disagreeing"
"""Places of the one row that stands for a whole problem."""


class Baseline(NamedTuple):
    """One baseline of a job.

    Attributes:
        config: Its settings.
        key: Hash of them, of where its texts are from, and of the code.
        writer: Writes its texts; None where it needs none.
    """

    config: BaselineConfig
    key: str
    writer: StepWriter | None

    def place(self, study: FurStudy, record: CotRecord, name: int | str | None) -> Place:
        """A place in a CoT."""
        return Place(study, self.config.kind, self.key, record, name)

    def places(self, study: FurStudy, record: CotRecord) -> list[Place]:
        """The places in a CoT that it has a row for: the steps, or the CoT as a whole."""
        is_whole = isinstance(self.config, FillerTokensConfig | CcShapConfig)
        names = [None] if is_whole else [step.index for step in record.steps]
        return [self.place(study, record, name) for name in names]


@dataclass(frozen=True)
class Work:
    """One measurement.

    Attributes:
        place: What it is of.
        request: What the engine is asked.
        altered: The changed CoT; None where the CoT is explained.
        max_evaluations: Of CC-SHAP, masked questions per attribution; 1 for others.
    """

    place: Place
    request: Question | CotRequest | ShapRequest
    altered: Altered | None
    max_evaluations: int = 1

    @property
    def num_tokens(self) -> int:
        """Length, for batches of similar length."""
        match self.request:
            case Question():
                return len(self.request.ids)
            case CotRequest():
                return len(self.request.prompt)
        return len(self.request.cot_prompt) + len(self.request.cot_ids)

    @property
    def weight(self) -> float:
        """How much it takes, in tokens; for CC-SHAP in tokens of all masked prompts at most."""
        return float(self.num_tokens * self.max_evaluations)

    def row(self, outcome: Any) -> Row:
        """Its row, from what came back: an outcome, or an error as text."""
        error = outcome if isinstance(outcome, str) else getattr(outcome, "error", None)
        found: Row = {"status": "failed", "reason": error}
        if self.altered is None:
            return self.place.row(**(shap_columns(outcome) if error is None else found))
        if error is None:
            found = answer_columns(self.place.study, self.place.record, self.altered, outcome)
        return self.place.row(source=self.altered.source, changed_text=self.altered.changed_text, **found)


class FurBaselines(FollowUp[FurBaselinesConfig]):
    """The baselines on the problems and steps of a finished sweep.

    Attributes:
        baselines: What is measured.
    """

    job = BASELINES_JOB
    code = (CHANGES_CODE, SHAP_CODE, TEXTS_CODE)

    def __init__(self, config: FurBaselinesConfig, supplies: Supplies) -> None:
        """Opens the sweep, reads files of texts and looks at models that write; asks none.

        Raises:
            FairwitnessError: See `open_finished`; a source of texts cannot be used.
        """
        super().__init__(config, supplies)
        # Methods of unlearning share the base model's CoTs, and so their baselines.
        self.finished = list({one.study.scope_key: one for one in self.finished}.values())
        self.studies = [one.study for one in self.finished]
        self.baselines = [_baseline(one, self.studies, supplies.rules) for one in config.baselines]
        self.cell_keys = [baseline.key for baseline in self.baselines]

    def counts(self, store: Store) -> Counter[str]:
        """Measurements by status."""
        where = of_run(self.row_keys)
        assert where is not None
        rows = store.read("baselines", ["status"], where & one_of("baseline_key", self.cell_keys))
        return Counter(rows["status"].to_pylist())

    def stages(self, session: Session) -> Iterator[Stage[Work]]:
        """See `Measure.stages`: all texts first, so that writing and measured models take turns once."""
        with ExitStack() as stack:
            ask = chat_models(session, stack)
            try:
                planned = [(one.study, list(self._works(one, session, ask))) for one in self.finished]
            finally:
                self._note_spending(session)
            for study, works in planned:
                yield _stage(study, works)

    def _works(self, finished: FinishedStudy, session: Session, ask: Ask) -> Iterator[Work]:
        """What is to be measured of a study; what is not gets its row here."""
        study = finished.study
        for baseline in self.baselines:
            failed = one_of("status", ["failed"]) & one_of("baseline_key", [baseline.key])
            keys = set(session.store.read("baselines", ["key"], failed)["key"].to_pylist())
            wanted = [one for one in finished.records if self._is_wanted(baseline, study, one, keys, session)]
            texts: Iterator[ProblemTexts] = (ProblemTexts(record, {}) for record in wanted)
            for one in texts if baseline.writer is None else baseline.writer.write(study, wanted, ask):
                done = session.store.finished_keys("baselines")
                rows = []
                for number, stray in enumerate(one.strays):
                    rows.append(baseline.place(study, one.record, f"stray {number}").row(**vars(stray)))
                for found in _measurements(study, baseline, one.record, one.texts):
                    if isinstance(found, Work):
                        if found.place.key not in done:
                            yield found
                    else:
                        rows.append(baseline.place(study, one.record, found.cot_step_index).row(**vars(found)))
                session.add("baselines", rows)

    def _is_wanted(
        self, baseline: Baseline, study: FurStudy, record: CotRecord, failed: set[str], session: Session
    ) -> bool:
        """Whether something of the problem is still to be measured; a problem that is not measured gets its row."""
        no_cot = baseline.place(study, record, NO_COT)
        if record.status != "ok" or not record.steps:
            status = record.status if record.status != "ok" else "skipped"
            session.add("baselines", [no_cot.row(status=status, reason=record.reason or "the CoT has no cot_step")])
            return False
        if no_cot.key in failed:
            session.add("baselines", [no_cot.row(status="skipped", reason=LATER)])
        if not record.agree and not self.config.disagreeing:
            row = baseline.place(study, record, DISAGREEING).row(status="skipped", reason=DISAGREE)
            session.add("baselines", [row])
            return False
        done = session.store.finished_keys("baselines")
        return any(place.key not in done for place in baseline.places(study, record))

    def _note_spending(self, session: Session) -> None:
        """What the writing models took, as health figures of the job."""
        for config, _, writer in self.baselines:
            if isinstance(writer, JudgeWriter):
                session.health[f"{config.kind}: texts by {writer.name}"] = writer.spent
                figures = ", ".join(f"{name} {value:g}" for name, value in writer.spent.items())
                log.info("%s: texts by %s: %s", config.kind, writer.name, figures)


def _baseline(config: BaselineConfig, studies: Sequence[FurStudy], rules: Mapping[str, Any]) -> Baseline:
    """A baseline by its settings. Files are read and models looked at; none is loaded or asked."""
    writer: StepWriter | None = None
    if isinstance(config, AddMistakeConfig | ParaphraseConfig):
        writer = _writer(config.texts, "mistake" if config.kind == "add_mistake" else "paraphrase", studies, rules)
    is_shap = isinstance(config, CcShapConfig)
    key = key_of(
        settings=config.model_dump(mode="json", exclude={"texts"}),
        texts=writer and writer.key,
        library=version("shap") if is_shap else None,
        code=code_revision(SHAP_CODE if is_shap else CHANGES_CODE),
    )
    return Baseline(config, key, writer)


def _writer(texts: Texts, purpose: Purpose, studies: Sequence[FurStudy], rules: Mapping[str, Any]) -> StepWriter:
    if isinstance(texts, RuleTexts):
        return RuleWriter(texts.name, rules, purpose)
    if isinstance(texts, JudgeTexts):
        return JudgeWriter(texts, purpose)
    writer = FileWriter(texts, studies, purpose)
    if writer.ignored:
        number = len(writer.ignored)
        log.warning("%s: %d lines about problems that are not in the run are passed over", texts.path, number)
    return writer


def _measurements(
    study: FurStudy, baseline: Baseline, record: CotRecord, texts: Mapping[int, StepText]
) -> Iterator[Work | NotAltered]:
    """Everything that a baseline measures of one CoT, or why not; one per place."""
    config = baseline.config
    asked: Iterable[tuple[Altered | None, Question | CotRequest | ShapRequest | NotAltered]]
    if isinstance(config, CcShapConfig):
        asked = [(None, shap_request(study, record))]
    else:
        asked = answer_requests(study, config, record, texts)
    for altered, request in asked:
        if isinstance(request, NotAltered):
            yield request
        else:
            place = baseline.place(study, record, None if altered is None else altered.cot_step_index)
            yield Work(place, request, altered, config.max_evaluations if isinstance(config, CcShapConfig) else 1)


def _stage(study: FurStudy, works: Sequence[Work]) -> Stage[Work]:
    def rows(batch: Sequence[Work], outcome: Outcome) -> list[list[Row]]:
        values = outcome.value if outcome.error is None else [outcome.error] * len(batch)
        return [[work.row(value)] for work, value in zip(batch, values, strict=True)]

    return Stage(
        label=f"{study.label}: baselines",
        table="baselines",
        spec=engine_spec(study),
        batches=list(_batches(works)),
        request=lambda batch: _item(study, batch),
        rows=rows,
        weight=lambda work: work.weight,
    )


def _batches(works: Sequence[Work]) -> Iterator[list[Work]]:
    """Measurements of one kind and similar length in batches, the longest first; CC-SHAP before the others."""
    sizes = {ShapRequest: PROBLEMS_PER_SHAP_ITEM, CotRequest: COTS_PER_ITEM, Question: QUESTIONS_PER_ITEM}
    kinds: dict[tuple[int, int], list[Work]] = {}
    for work in sorted(works, key=lambda work: -work.num_tokens):
        kind = list(sizes).index(type(work.request))
        kinds.setdefault((kind, work.max_evaluations), []).append(work)
    for (kind, _), some in sorted(kinds.items(), key=lambda item: item[0]):
        size = list(sizes.values())[kind]
        yield from (some[start : start + size] for start in range(0, len(some), size))


def _item(study: FurStudy, batch: Sequence[Work]) -> AnswerItem | CotItem | ShapItem:
    requests: Any = tuple(work.request for work in batch)
    match requests[0]:
        case ShapRequest():
            return ShapItem(requests, batch[0].max_evaluations)
        case CotRequest():
            return CotItem(requests, study.config.cot)
    return AnswerItem(requests)
