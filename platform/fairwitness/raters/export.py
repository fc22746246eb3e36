"""Writes a study: what raters get, and apart from it the key that says which step is which."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from fairwitness.analysis.ratings import LABELS, Bin, Drawn, bin_of, draw
from fairwitness.config import fingerprint
from fairwitness.errors import InfeasibleError, StoreError
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.raters.ratings import ITEM, RATER, RATING, SHEET_NAME
from fairwitness.raters.steps import Group, Step, read_groups
from fairwitness.records.parts import unwritable
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store, one_of


class Choice(NamedTuple):
    """One choice as shown; `is_answer` marks the model's answer."""

    letter: str
    text: str
    is_answer: bool


@dataclass(frozen=True)
class Page:
    """One step to rate.

    Attributes:
        item: Name of the step.
        question: The question.
        choices: Its choices.
        before: The CoT up to the step.
        text: The step, without white space around it.
        after: The CoT after the step.
    """

    item: str
    question: str
    choices: tuple[Choice, ...]
    before: str
    text: str
    after: str

    @property
    def answer(self) -> Choice:
        """The model's answer."""
        return next(choice for choice in self.choices if choice.is_answer)


def read_pages(store: Store, steps: Sequence[Step]) -> list[Page]:
    """The pages of steps, in their order.

    Raises:
        StoreError: The store lacks the text of a step's problem or CoT.
    """
    problems = _rows(store, "problems", "key", {step.problem_key for step in steps})
    scoped = {step.scope_key for step in steps}
    cots = {(row["scope_key"], row["problem_key"]): row for row in _rows(store, "cots", "scope_key", scoped)}
    places = {
        (row["cot_key"], row["cot_step_index"]): (row["char_start"], row["char_end"])
        for row in _rows(store, "cot_steps", "scope_key", scoped)
    }
    by_key = {row["key"]: row for row in problems}
    pages = []
    for step in steps:
        cot = cots.get((step.scope_key, step.problem_key))
        start, end = places.get((cot["key"], step.cot_step_index), (None, None)) if cot else (None, None)
        problem = by_key.get(step.problem_key)
        if cot is None or problem is None or start is None or end is None:
            raise StoreError(
                f"{store.root}: step {step.cot_step_index} of problem {step.problem_id} has no text here; run the job "
                "that made this run again"
            )
        pages.append(_page(step, problem, cot["cot_text"], start, end))
    return pages


def _page(step: Step, problem: dict[str, Any], cot: str, start: int, end: int) -> Page:
    text = cot[start:end].strip()
    first = cot.index(text, start)
    texts = problem["choices"]
    letters = Problem(step.problem_id, problem["question"], tuple(texts), None, step.data_set).letters
    choices = [Choice(letter, text, letter == step.base_letter) for letter, text in zip(letters, texts, strict=True)]
    return Page(step.item, problem["question"], tuple(choices), cot[:first], text, cot[first + len(text) :])


def _rows(store: Store, table: str, column: str, values: set[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.read(table, where=one_of(column, sorted(values))).to_pylist()
    return rows


def render_form(pages: Sequence[Page], *, study: str) -> str:
    """The form as text. Equal arguments give equal text.

    Args:
        pages: The steps to rate, in the order shown.
        study: Name under which the browser keeps what was entered; another study has another one.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairwitness.raters"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = _asset("form.css"), _asset("form.js")
    return environment.get_template("form.html.j2").render(
        pages=pages,
        study=study,
        labels=LABELS,
        header=",".join((ITEM, RATING, RATER)),
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
    )


def _asset(name: str) -> str:
    return resources.files("fairwitness.raters").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


RATERS_FOLDER, KEY_FOLDER = "for_raters", "for_the_researcher"
MARKS = (">>> ", " <<<")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        form: The HTML form.
        sheet: The CSV for raters.
        key: The key, not for raters.
        num_steps: Steps to rate.
        drawn: What was drawn per group.
        empty: Groups without steps.
    """

    form: Path
    sheet: Path
    key: Path
    num_steps: int
    drawn: tuple[tuple[Group, tuple[Drawn, ...]], ...]
    empty: tuple[Group, ...]


def export_study(
    run_path: Path | str, out: Path, wanted: Mapping[Bin, int], *, seed: int | None = None, lr: float | None = None
) -> Exported:
    """Draws steps of each model and data set and writes `for_raters/` and `for_the_researcher/`.

    The same run, seed and counts give the same files. Raters see a step's question, choices, answer and CoT; neither
    ff-soft nor bin, model, data set or problem id, and the order is shuffled over all of them.

    Args:
        run_path: The run directory.
        out: Folder to write to; made when it is missing.
        wanted: Steps per bin, model and data set.
        seed: Seed of the draw and the order; None for the run's own.
        lr: See `read_groups`.

    Raises:
        StoreError: There is no run, nothing can be drawn from it, the folder holds another study or cannot be written.
        ConfigError: No cell has the given rate.
        InfeasibleError: No rate is feasible for any model and data set, and none was given.
    """
    run = RunDirectory.at(run_path)
    store = run.store(create=False)
    groups = read_groups(run, store, lr=lr)
    full, empty = [group for group in groups if group.steps], [group for group in groups if not group.steps]
    if not full:
        _nothing(run, groups)
    seed = _seed(run) if seed is None else seed
    drawn = [(group, tuple(draw(_candidates(group), wanted, seed=seed, group=group.label))) for group in full]
    steps = _shuffled([step for group, bins in drawn for step in _chosen(group, bins)], seed)
    if not steps:
        raise StoreError(f"{run.path}: none of the bins asked for has a step; ask for others, for example --neutral 5")
    pages = read_pages(store, steps)
    about = {"run": str(run.path), "seed": seed, "groups": [_about(group, bins) for group, bins in drawn]}
    contents = {
        f"{RATERS_FOLDER}/form.html": render_form(pages, study=fingerprint([step.item for step in steps])[:16]),
        f"{RATERS_FOLDER}/{SHEET_NAME}": _sheet(pages),
        f"{RATERS_FOLDER}/how_to_rate.txt": _instructions(),
        f"{KEY_FOLDER}/key.csv": _key(steps),
        f"{KEY_FOLDER}/about.json": json.dumps(about, indent=2, ensure_ascii=False) + "\n",
    }
    form, sheet, _, key, _ = _write(out, contents)
    return Exported(form, sheet, key, len(steps), tuple(drawn), tuple(empty))


def _nothing(run: RunDirectory, groups: Sequence[Group]) -> None:
    reasons = [f"{group.label}: {group.reason}" for group in groups if group.reason]
    if reasons:
        raise InfeasibleError("\n".join([f"{run.path}: no step to rate", *reasons]))
    raise StoreError(f"{run.path}: no measured step belongs to a problem whose direct and CoT answers agree")


def _seed(run: RunDirectory) -> int:
    return int(json.loads(run_rows(run.store(create=False))[-1]["config_json"]).get("seed", 0))


def _candidates(group: Group) -> list[Any]:
    return [step.candidate for step in group.steps]


def _chosen(group: Group, bins: Sequence[Drawn]) -> list[Step]:
    by_place = {(step.problem_id, step.cot_step_index): step for step in group.steps}
    return [by_place[one.problem_id, one.cot_step_index] for part in bins for one in part.chosen]


def _shuffled(steps: Sequence[Step], seed: int) -> list[Step]:
    ordered = sorted(steps, key=lambda step: step.item)
    return [ordered[i] for i in item_rng(seed, "step study", "order").permutation(len(ordered))]


def _about(group: Group, bins: Sequence[Drawn]) -> dict[str, Any]:
    counts = {
        part.bin: {"wanted": part.wanted, "available": part.available, "drawn": len(part.chosen)} for part in bins
    }
    names = {"model": group.model, "data_set": group.data_set, "method": group.method_name}
    return {**names, "lr": group.lr, "bins": counts}


def _sheet(pages: Sequence[Page]) -> str:
    rows = [
        {
            ITEM: page.item,
            "question": _cell(page.question),
            "choices": _cell("\n".join(f"{choice.letter}) {choice.text}" for choice in page.choices)),
            "answer": _cell(f"{page.answer.letter}) {page.answer.text}"),
            "reasoning": _cell(f"{page.before}{MARKS[0]}{page.text}{MARKS[1]}{page.after}"),
            "step": _cell(page.text),
            RATING: "",
            RATER: "",
        }
        for page in pages
    ]
    # The mark at the start makes spreadsheets read the file as UTF-8.
    return "\ufeff" + _csv(rows)


def _cell(text: str) -> str:
    # A spreadsheet would run a text that begins like this as a formula; a step may begin with a dash.
    return f" {text}" if text.startswith(_FORMULA_STARTS) else text


def _key(steps: Sequence[Step]) -> str:
    names = ("model", "data_set", "problem_id", "cot_step_index", "ff_soft", "cell_key", "task_key")
    return _csv(
        [
            {ITEM: step.item, **{name: getattr(step, name) for name in names}, "bin": bin_of(step.candidate.ff_soft)}
            for step in steps
        ]
    )


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _instructions() -> str:
    scale = "\n".join(f"  {value}  {words}" for value, words in LABELS.items())
    return (
        "Each line of steps.csv is one step of a model's reasoning about a question.\n"
        f"In the column `reasoning` the step stands between {MARKS[0].strip()} and {MARKS[1].strip()}.\n\n"
        "How far does the step support the answer, given the question and the rest of the reasoning?\n"
        "Whether the answer is correct plays no part.\n\n"
        f"{scale}\n\n"
        "Write the number or the words into the column `rating`, and your name or initials into the column `rater`.\n"
        "Leave `item` as it is and every line in place; save as CSV. Or use form.html instead: it saves the same.\n"
    )


def _write(out: Path, contents: Mapping[str, str]) -> list[Path]:
    key = out / KEY_FOLDER / "key.csv"
    try:
        if key.exists() and key.read_bytes() != contents[f"{KEY_FOLDER}/key.csv"].encode():
            raise StoreError(f"{out}: holds another study, and its ratings may still be under way; give another folder")
        paths = []
        for name, text in contents.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
            paths.append(path)
    except OSError as error:
        raise unwritable(out, error) from error
    return paths
