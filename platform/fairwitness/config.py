"""Configuration: a frozen base, loading with overrides, and fingerprints.

A configuration is read once, checked before anything else happens, and never changed. Each component owns its own class
beside its code; a job composes them.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fairwitness.errors import ConfigError
from fairwitness.redact import redact_refused, redact_text


class Config(BaseModel):
    """Base of every configuration: immutable, unknown keys refused, text taken for a number only where it is one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, protected_namespaces=()
    )


ConfigT = TypeVar("ConfigT", bound=Config)


class _Loader(yaml.SafeLoader):
    """YAML in which `2e-5` is a number, as in JSON, and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is a list or mapping; keys are words", key_node.start_mark
                )
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise ConfigError(f"key {key_node.value!r} is given twice (line {line}); keep one of them")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _make_exponents_floats() -> None:
    import re

    pattern = re.compile(r"^[-+]?(\d[\d_]*(\.\d*)?|\.\d+)[eE][-+]?\d+$")
    _Loader.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+0123456789."))


_make_exponents_floats()


def parse_yaml(text: str) -> Any:
    """Parses YAML with `1e-5` as a float and repeated keys refused.

    Raises:
        ConfigError: The text is not YAML, or a key is given twice.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a date that there is not, a number of thousands of digits.
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError("not valid YAML: it is nested too deep") from error


def read_settings(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file; an empty one gives none.

    Raises:
        ConfigError: It cannot be read, is not YAML, or holds something else than keys and values.
    """
    try:
        data = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give the path of a YAML file") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold `key: value` lines, not a {type(data).__name__}")
    return data


def load_config(cls: type[ConfigT], source: Path | Mapping[str, Any] | None, overrides: Sequence[str] = ()) -> ConfigT:
    """Reads a YAML file, applies `key=value` overrides and checks the result.

    Args:
        cls: The configuration class.
        source: YAML file; keys and values as it would hold them; or None to start from the defaults.
        overrides: Each `dotted.key=value`; the value is read as YAML. A list item is named by its number.

    Raises:
        ConfigError: The file or an override cannot be read, or a value is refused. The message names the key and,
            for an unknown one, the nearest known key.
    """
    if isinstance(source, Path):
        data, name = read_settings(source), str(source)
    else:
        data, name = copy.deepcopy(dict(source or {})), "settings" if source else "defaults"
    for override in overrides:
        _apply_override(data, override)
    return validate(cls, data, name)


def validate(cls: type[ConfigT], data: Mapping[str, Any], source: str) -> ConfigT:
    """Checks plain data against a configuration class.

    Raises:
        ConfigError: Every refused value on its own line, with source, key and what to do.
    """
    try:
        config = cls.model_validate(data)
        lines = [f"{key}: must be a number, not yes or no" for key in _switches(data, config.model_dump())]
    except ValidationError as error:
        lines = [_explain(cls, item) for item in _telling(error.errors())]
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines)) from error
    if lines:
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))
    return config


def fingerprint(value: Any) -> str:
    """Hash of a JSON-like value or configuration, the same in every process (32 hexadecimal digits)."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def to_yaml(config: Config) -> str:
    """The resolved configuration as YAML that `load_config` reads back to an equal one."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set {override}: write it as key=value, for example --set seed=1")
    *parents, last = key.strip().split(".")
    target: Any = data
    for name in parents:
        target = _descend(target, name, override)
    try:
        value = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"--set {redact_text(override)}: {redact_text(str(error))}") from error
    if isinstance(target, list):
        target[_list_index(target, last, override)] = value
    else:
        target[last] = value


def _descend(target: Any, name: str, override: str) -> Any:
    place: Any = _list_index(target, name, override) if isinstance(target, list) else name
    child = target[place] if isinstance(target, list) else target.get(place)
    if child is None:
        child = target[place] = {}
    if not isinstance(child, dict | list):
        raise ConfigError(f"--set {override}: {name!r} is a single value, it has no keys below it")
    return child


def _list_index(target: list[Any], name: str, override: str) -> int:
    if not name.isdecimal() or int(name) >= len(target):
        raise ConfigError(f"--set {override}: {name!r} must be a number from 0 to {len(target) - 1}")
    return int(name)


def _switches(given: Any, taken: Any, key: str = "") -> Iterator[str]:
    """Keys that hold true or false where a number is wanted; pydantic takes them for 1 and 0."""
    if isinstance(given, dict) and isinstance(taken, dict):
        for name in taken.keys() & given.keys():
            yield from _switches(given[name], taken[name], f"{key}.{name}".strip("."))
    elif isinstance(given, list) and isinstance(taken, tuple):
        for number, pair in enumerate(zip(given, taken, strict=False)):
            yield from _switches(*pair, f"{key}.{number}")
    elif isinstance(given, bool) and isinstance(taken, int | float) and not isinstance(taken, bool):
        yield key


def _telling(items: Sequence[Any]) -> list[Any]:
    """The errors without those of lists that count as empty only because their items were refused."""
    return [item for item in items if item["type"] != "too_short" or not item["input"]]


def _explain(cls: type[BaseModel], item: Any) -> str:
    location = [part for part in item["loc"] if not str(part).startswith(("function-", "tagged-union"))]
    key = ".".join(str(part) for part in location)
    if item["type"] == "extra_forbidden":
        near = _nearest(str(location[-1]), _keys_beside(cls, location[:-1]))
        return f"unknown key {key!r}{f'; did you mean {near!r}?' if near else ''}"
    if item["type"] == "missing":
        return f"{key}: is missing; add it"
    if item["type"] == "union_tag_not_found":
        return f"{key}: {item['ctx']['discriminator']} is missing; add it"
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        # A rule of several settings names them itself; the whole of what was given would bury that.
        return f"{key or 'config'}: {item['ctx']['error']}"
    given = redact_refused(str(location[-1]) if location else "", item["input"])
    # Without pydantic's "Value error, " before the rule's own words.
    message = item["ctx"]["error"] if item["type"] == "value_error" else item["msg"]
    return f"{key or 'config'}: {message} (given: {given!r})"


def _nearest(word: str, known: Sequence[str]) -> str | None:
    """The known key that was probably meant: one that continues the word or is continued by it, else a similar one."""
    continued = [
        key for key in known if min(len(word), len(key)) > 2 and (key.startswith(word) or word.startswith(key))
    ]
    near = difflib.get_close_matches(word, continued, n=1, cutoff=0.0) or difflib.get_close_matches(
        word, known, n=1, cutoff=0.5
    )
    return near[0] if near else None


def _keys_beside(cls: type[BaseModel], parents: Sequence[str | int]) -> list[str]:
    """The keys that may stand below these parents. A parent that is no key is a list's number or a kind's name."""
    classes = [cls]
    for parent in parents:
        fields = [one.model_fields[str(parent)] for one in classes if parent in one.model_fields]
        kinds = [one for one in classes if "kind" in one.model_fields and one.model_fields["kind"].default == parent]
        classes = [inner for field in fields for inner in _models_in(field.annotation)] or kinds or classes
    return list(dict.fromkeys(name for one in classes for name in one.model_fields))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)
