"""Templates and assets of the pages."""

from __future__ import annotations

from functools import cache
from importlib import resources

import jinja2

from fairwitness.report import format as fmt


@cache
def environment() -> jinja2.Environment:
    """The templates, escaping by default, with the functions that write numbers."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fairwitness.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    names = ("percent", "decimal", "signed", "rate", "count", "figure", "moment", "duration", "plural", "is_missing")
    made.globals |= {name: getattr(fmt, name) for name in names}
    return made


def asset(name: str) -> str:
    """The text of a file beside the templates: styles or a script."""
    return resources.files("fairwitness.report").joinpath("templates", name).read_text(encoding="utf-8")
