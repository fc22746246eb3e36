"""The question that is put to a judge: a file with two texts, which a user can replace by another.

A template is YAML with the keys `system` (may be missing) and `user`; both are Jinja templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field

from fairwitness.config import Config, fingerprint, parse_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.judges.protocol import ChatPrompt


class _Texts(Config):
    system: str = ""
    """Instructions."""
    user: str = Field(min_length=1)
    """What is asked about one item."""


class PromptTemplate:
    """Fills in the values of one item. Values are texts; they are never read as templates."""

    def __init__(self, texts: _Texts, source: str, required: Sequence[str], optional: Sequence[str]) -> None:
        """Checks that the template shows what it must and names nothing else.

        Raises:
            ConfigError: It is no Jinja template, lacks a required value, or names an unknown one.
        """
        # Prompts are plain text for a model: escaping would change what it reads.
        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=False
        )
        self._texts, self._source = texts, source
        used: set[str] = set()
        try:
            for text in (texts.system, texts.user):
                used |= meta.find_undeclared_variables(environment.parse(text))
            self._system, self._user = (environment.from_string(text) for text in (texts.system, texts.user))
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"{source}: not a template (line {error.lineno}: {error.message})") from error
        known = [*required, *optional]
        unknown, missing = sorted(used - set(known)), [name for name in required if name not in used]
        if unknown:
            raise ConfigError(f"{source}: {unknown[0]!r} is no value of this question; there are {', '.join(known)}")
        if missing:
            raise ConfigError(f"{source}: must show {{{{ {missing[0]} }}}}, or the judge does not see it")

    @property
    def key(self) -> str:
        """Hash of both texts."""
        return fingerprint(self._texts)

    def fill(self, values: Mapping[str, Any]) -> ChatPrompt:
        """The prompt of one item.

        Raises:
            ConfigError: The template cannot be filled in.
        """
        try:
            return ChatPrompt(self._user.render(values).strip(), self._system.render(values).strip())
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._source}: cannot be filled in ({error})") from error


def load_template(
    name: str, path: str | None, *, required: Sequence[str], optional: Sequence[str] = ()
) -> PromptTemplate:
    """The shipped template of that name (without ending), or the user's own at `path`.

    It must show the required values and may show the optional ones.

    Raises:
        ConfigError: It cannot be read, or see `PromptTemplate`.
    """
    source = path or f"template {name}"
    try:
        shipped = resources.files("fairwitness.judges").joinpath("templates", f"{name}.yaml")
        text = (Path(path) if path else shipped).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error}); give the path of a YAML file") from error
    try:
        data = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: must hold the keys `system` and `user`")
    return PromptTemplate(validate(_Texts, data, source), source, required, optional)
