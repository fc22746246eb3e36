"""The rating form: one HTML file that works from a folder, without a network, and saves ratings as CSV."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

import jinja2
from markupsafe import Markup

from fairwitness.fur.step_study.pages import Page
from fairwitness.fur.step_study.ratings_file import ITEM, RATER, RATING
from fairwitness.fur.step_study.scale import LABELS


def render_form(pages: Sequence[Page], *, study: str) -> str:
    """The form as text. Equal arguments give equal text.

    Args:
        pages: The steps to rate, in the order shown.
        study: Name under which the browser keeps what was entered; another study has another one.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairwitness.fur.step_study"),
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
    return resources.files("fairwitness.fur.step_study").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
