"""Reads published files: which kind each one is, its lines, and the lines that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from fairwitness.errors import DataError
from fairwitness.problems.readers import TextFormat, read_csv, read_file, read_jsonl
from fairwitness.problems.records import FieldError, Record, Refused
from fairwitness.published.lines import SHAPES, Line, ResultLine, Shape, StudyLine, parse_line

DATA_SETS: Mapping[str, str] = MappingProxyType(
    {"arc-challenge": "arc_challenge", "openbook": "openbookqa", "sports": "bbh_sports", "sqa": "strategyqa"}
)
"""Published names of data sets to ours. Any other name is kept."""
MODELS: Mapping[str, str] = MappingProxyType({"LLaMA-3": "LLaMA-3-8B"})
"""Published short names of models to those of the paper's study. Any other name is kept."""

_RESULTS = re.compile(
    r"(?P<objective>[A-Za-z]+_[A-Za-z]+)(_(?P<strategy>[a-z]+))?(_s=(True|False))?_lr=(?P<lr>[^_]+)_rs=(?P<seed>\d+)"
    r"_pos=(?P<pos>True|False)_ff2=(?P<ff2>True|False)\.(out|jsonl)"
)
_JUDGEMENTS = re.compile(r"(?P<model>[^_]+)_(?P<data>[^_]+)_(?P<objective>.+)_(?P<lr>[^_]+)_judgements\.jsonl")


@dataclass(frozen=True)
class Origin:
    """Where published lines are from. None: the file does not tell.

    Attributes:
        model: Name of the model.
        data_set: Name of the data set, ours where we have it.
        objective: Objective in small letters, for example npo_kl.
        lr: Learning rate.
        seed: Seed.
        content_only: Whether only content words were unlearned (`pos`).
        ff2_only: Whether only the FF2 weights were updated (`ff2`).
    """

    model: str
    data_set: str
    objective: str | None = None
    lr: float | None = None
    seed: int | None = None
    content_only: bool | None = None
    ff2_only: bool | None = None

    @property
    def method(self) -> str:
        """As in the table `unlearning`: ff2, or all for all weights."""
        return "all" if self.ff2_only is False else "ff2"

    @property
    def variant(self) -> tuple[str, str, str | None, int | None, bool | None]:
        """What the CoTs of two files must share to be the same ones."""
        return self.model, self.data_set, self.objective, self.seed, self.content_only

    def fits(self, other: Origin) -> bool:
        """Whether nothing that both tell differs."""
        pairs = zip(self.variant, other.variant, strict=True)
        return all(one is None or two is None or one == two for one, two in pairs)


def named(model: str, data_set: str) -> Origin:
    """An origin of which only model and data set are known, published names replaced by ours."""
    return Origin(MODELS.get(model, model), DATA_SETS.get(data_set, data_set))


def origin_of(path: Path, *, model: str | None = None, data_set: str | None = None, lr: float | None = None) -> Origin:
    """Reads the name of a file of results, mistakes or judgements.

    Args:
        path: `<data set>/<model>/npo_KL_…lr=…_rs=…_pos=…_ff2=….out` or
            `<model>_<data set>_NPO_KL_<rate>_judgements.jsonl`.
        model: The model, instead of what the name says.
        data_set: The data set, instead of what the name says.
        lr: The learning rate, instead of what the name says.

    Raises:
        DataError: The name does not tell model and data set, and they are not given.
    """
    found = _from_name(path.resolve())
    if found is None and (model is None or data_set is None):
        raise DataError(
            f"{path}: the name tells no model and data set; give --model and --data-set, or a name as published: "
            "<data set>/<model>/npo_KL_lr=…_rs=…_pos=…_ff2=….out or <model>_<data set>_NPO_KL_<rate>_judgements.jsonl"
        )
    known = named(model or (found.model if found else ""), data_set or (found.data_set if found else ""))
    origin = replace(found, model=known.model, data_set=known.data_set) if found else known
    return origin if lr is None else replace(origin, lr=lr)


def _from_name(path: Path) -> Origin | None:
    name = path.name
    judged = _JUDGEMENTS.fullmatch(name)
    if judged:
        origin = named(judged["model"], judged["data"])
        return replace(origin, objective=judged["objective"].lower(), lr=_rate(path, judged["lr"]))
    results = _RESULTS.fullmatch(name)
    if not results or len(path.parts) < 4:
        return None
    return replace(
        named(path.parent.name, path.parent.parent.name),
        objective=results["objective"].lower(),
        lr=_rate(path, results["lr"]),
        seed=int(results["seed"]),
        content_only=results["pos"] == "True",
        ff2_only=results["ff2"] == "True",
    )


def _rate(path: Path, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise DataError(f"{path}: the name gives {text!r} as the learning rate; give it with --lr") from error


@dataclass(frozen=True)
class Taken:
    """One usable line and where it is from."""

    origin: Origin
    line: Line
    record: Record

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.record.source}:{self.record.line}"


@dataclass(frozen=True)
class PublishedFile:
    """What a file holds.

    Attributes:
        path: The file.
        shape: Name of its kind: results, mistakes, judgements or study.
        taken: The usable lines.
        refused: The others.
        data_set: Data set of the refused ones.
        content_hash: Hash of its bytes.
    """

    path: Path
    shape: str
    taken: tuple[Taken, ...]
    refused: tuple[Refused, ...]
    data_set: str
    content_hash: str


def read_published(
    path: Path, *, model: str | None = None, data_set: str | None = None, lr: float | None = None
) -> PublishedFile:
    """Reads one file. A line that cannot be used is refused with file, line and field.

    Args:
        path: JSON lines, or CSV for the study.
        model: See `origin_of`.
        data_set: See `origin_of`.
        lr: See `origin_of`.

    Raises:
        DataError: It cannot be read, is of a kind or version that is not known, holds no usable line, or its name does
            not tell where it is from.
    """
    found = read_file(path, read_csv if path.suffix == ".csv" else read_jsonl, TextFormat("utf-8", csv_header=True))
    shape = _shape(path, found.records, found.refused)
    origin = None if shape.line is StudyLine else origin_of(path, model=model, data_set=data_set, lr=lr)
    if shape.line is ResultLine and origin and origin.lr is None:
        raise DataError(f"{path}: the name tells no learning rate; give it with --lr")
    taken: list[Taken] = []
    refused = list(found.refused)
    for record in found.records:
        try:
            line = parse_line(shape, record.values)
        except FieldError as error:
            refused.append(error.refused(record))
        else:
            taken.append(Taken(origin or _study_origin(line), line, record))
    if not taken:
        raise DataError(f"{path}: no line can be read as {shape.name}; another version? The first fault: {refused[0]}")
    refused.sort(key=lambda fault: fault.line)
    where = origin.data_set if origin else taken[0].origin.data_set
    return PublishedFile(path, shape.name, tuple(taken), tuple(refused), where, found.content_hash)


def _study_origin(line: Line) -> Origin:
    assert isinstance(line, StudyLine)
    return named(line.model, line.dataset)


def _shape(path: Path, records: Sequence[Record], refused: Sequence[Refused]) -> Shape:
    fitting = [(sum(set(shape.marks) <= set(record.values) for record in records), shape) for shape in SHAPES]
    most, shape = max(fitting, key=lambda pair: pair[0])
    if most:
        return shape
    kinds = "; ".join(f"{one.name} ({', '.join(one.marks)})" for one in SHAPES)
    if records:
        fields = ", ".join(list(records[0].values)[:12])
        raise DataError(
            f"{path}: is no published file of a version known here: it has the fields {fields}; known: {kinds}"
        )
    raise DataError(f"{path}: {refused[0] if refused else 'is empty'}; known are files of {kinds}")
