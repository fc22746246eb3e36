"""Ready definitions: where a known data set is on the hub and how its records read.

Each lists the shape of the hub's rows and, where it differs, that of the set's original files; the first mapping whose
fields are all there is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fairwitness.problems.config import FieldMap


@dataclass(frozen=True)
class Definition:
    """A known data set.

    Attributes:
        hub_id: Its id on the hub.
        hub_config: Its configuration (subset) there, or None.
        hub_split: The split that is used unless another is asked for.
        maps: Field mappings, one per shape in which its records occur.
        csv_header: Whether its CSV files begin with a line of names.
        shuffle_choices: Whether the order of the choices gives the answer away, so that it is shuffled.
        has_subjects: Whether its files are named after subjects (`<subject>_test.csv`) and its hub rows name theirs.
    """

    hub_id: str
    hub_config: str | None
    hub_split: str
    maps: tuple[FieldMap, ...]
    csv_header: bool = True
    shuffle_choices: bool = False
    has_subjects: bool = False


DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "arc_challenge": Definition(
            hub_id="allenai/ai2_arc",
            hub_config="ARC-Challenge",
            hub_split="test",
            maps=(
                FieldMap(id="id", question="question", choices="choices", gold="answerKey", gold_kind="label"),
                FieldMap(
                    id="id", question="question.stem", choices="question.choices", gold="answerKey", gold_kind="label"
                ),
            ),
        ),
        "openbookqa": Definition(
            hub_id="allenai/openbookqa",
            hub_config="main",
            hub_split="test",
            maps=(
                FieldMap(id="id", question="question_stem", choices="choices", gold="answerKey", gold_kind="label"),
                FieldMap(
                    id="id", question="question.stem", choices="question.choices", gold="answerKey", gold_kind="label"
                ),
            ),
        ),
        "strategyqa": Definition(
            hub_id="ChilleD/StrategyQA",
            hub_config=None,
            hub_split="test",
            maps=(
                FieldMap(
                    id="qid",
                    question="question",
                    choices=None,
                    fixed_choices=("Yes", "No"),
                    gold="answer",
                    gold_kind="bool",
                ),
            ),
        ),
        "truthfulqa": Definition(
            hub_id="truthfulqa/truthful_qa",
            hub_config="multiple_choice",
            hub_split="validation",
            maps=(FieldMap(question="question", choices="mc1_targets", gold=None),),
            shuffle_choices=True,
        ),
        "bbh_sports": Definition(
            hub_id="lukaemon/bbh",
            hub_config="sports_understanding",
            hub_split="test",
            maps=(
                FieldMap(question="input", choices=None, fixed_choices=("yes", "no"), gold="target", gold_kind="text"),
            ),
        ),
        "mmlu": Definition(
            hub_id="cais/mmlu",
            hub_config="all",
            hub_split="test",
            maps=(
                FieldMap(
                    question="question", choices="choices", gold="answer", gold_kind="index0", metadata=("subject",)
                ),
                FieldMap(
                    question="0", choices=("1", "2", "3", "4"), gold="5", gold_kind="letter", metadata=("subject",)
                ),
            ),
            csv_header=False,
            has_subjects=True,
        ),
    }
)
