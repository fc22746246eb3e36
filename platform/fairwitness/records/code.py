"""Which code a result depends on, and a hash of it: a module, all that it imports of ours, and what that imports.

Sources are parsed, nothing is imported. What counts of a module is its name and its syntax tree without comments,
docstrings, layout, `pass`, `__version__` and imports under `if TYPE_CHECKING:`; so an edit that computes nothing keeps
the hash. Annotations count, because they make the fields of dataclasses and configurations. So does every other
statement, a log message too: telling which of them can change a value is not possible in general, and measuring once
too often is the cheaper error.

The tree is written out by `_Reader`, not by `ast.dump` or `ast.unparse`, whose texts differ between versions of Python.
The hash is the same from a checkout, a wheel, a zip and a worker's folder; no git is needed.

Not covered, and so part of a key by themselves: other packages (their versions), data files such as templates and word
lists, and modules that are imported by a computed name. `fairwitness_schemas` decides columns, not values, and is left
out.

Whole modules count, not single functions: a module acts when it is imported, and so does the `__init__` of each package
above it, except that of the whole, which holds the public names alone. Code that must not share a key belongs in
modules that do not import each other.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

PACKAGE = "fairwitness"

PLUMBING = (
    "fairwitness.errors",
    "fairwitness.redact",
    "fairwitness.config",
    "fairwitness.fleet",
    "fairwitness.records",
    "fairwitness.experiment",
    "fairwitness.report",
)
"""Modules and packages at which the walk stops: they carry, check, store and show values, and compute none.

- `errors`, `redact`: what is said when something fails.
- `config`: how settings are read and refused; the settings themselves are in the key. Its `fingerprint` also seeds
  draws, but it makes the keys as well: a change that gives other draws gives other keys.
- `fleet`: which worker does an item. That no value depends on it is tested (local = Ray, group of 1 = group of k).
- `records`, `experiment`: tables, run directory, tracker, progress, keys, and the frame that runs measures.
- `report`: pages of what has been measured.
"""

SETTINGS = "config"
"""Modules of this name declare settings, in whatever package, and are passed over: the values are in the keys."""

_IDLE_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of syntax nodes that follow from the rest or say nothing at run time."""
_EMPTY = "Module()"


@functools.cache
def code_revision(*modules: str, without: tuple[str, ...] = ()) -> str:
    """Hash of the code that the modules depend on, 32 hexadecimal digits; their order plays no role.

    Example: `code_revision("fairwitness.fur.engine")`.

    Args:
        modules: Dotted names of modules below `fairwitness`. A package stands for its `__init__` and what that imports,
            not for the modules in it. A module named here counts even where the walk would stop.
        without: Modules and packages at which the walk stops besides `PLUMBING`, because the caller's key has them
            already, item by item.

    Raises:
        ValueError: No module is named; there is no such module; a named one holds no code, as an empty `__init__` does;
            or a module of the closure has an import that cannot be followed (relative, or `*`).
    """
    return _revision(files(PACKAGE), modules, (*PLUMBING, *without))


def closure(*modules: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Names of the modules that `code_revision` of the same arguments covers, sorted.

    Raises:
        ValueError: As in `code_revision`.
    """
    return tuple(_closure(files(PACKAGE), modules, (*PLUMBING, *without)))


class _Import(NamedTuple):
    """A module that is imported or, if not `is_module`, perhaps a name in the module before its last dot."""

    name: str
    is_module: bool


class _Module(NamedTuple):
    """The syntax tree of a module as text, and the names that it imports."""

    code: str
    imports: tuple[_Import, ...]


def _revision(folder: Traversable, roots: Sequence[str], stops: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name, module in _closure(folder, roots, stops).items():
        code = module.code.encode()
        digest.update(f"{name}\0{len(code)}\0".encode())
        digest.update(code)
    return digest.hexdigest()[:32]


def _closure(folder: Traversable, roots: Sequence[str], stops: Sequence[str]) -> dict[str, _Module]:
    """The modules of the package in `folder` that the roots reach without going through a stop, by sorted name."""
    sources = dict(_sources(folder, folder.name))
    if not roots:
        raise ValueError("name at least one module whose code counts")
    for name in (*roots, *stops):
        if name not in sources:
            raise ValueError(f"there is no module {name}")
    reached: dict[str, _Module] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = _read(name, sources[name].read_bytes())
            waiting += _next_modules(name, reached[name].imports, sources.keys(), stops)
    for name in roots:
        if reached[name].code == _EMPTY:
            raise ValueError(f"{name} holds no code; name the modules whose code counts")
    return dict(sorted(reached.items()))


def _next_modules(name: str, imports: Iterable[_Import], known: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The modules that importing `name` runs: the packages above it and what it imports of its own package."""
    parts = name.split(".")
    above = [_Import(".".join(parts[:length]), True) for length in range(2, len(parts))]
    for wanted in (*above, *imports):
        if not _is_in(wanted.name, parts[:1]) or _is_in(wanted.name, stops) or wanted.name == parts[0]:
            continue
        if wanted.name.endswith(f".{SETTINGS}"):
            continue
        if wanted.name in known:
            yield wanted.name
        elif wanted.is_module:
            raise ValueError(f"{name} imports {wanted.name}, but there is no such module")


def _is_in(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Source files by module name. They are listed, not asked for, because some file systems take `A.py` for `a.py`."""
    # As in Python, a package wins over a module of the same name: it comes later.
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.is_dir()):
        if entry.is_dir():
            if entry.joinpath("__init__.py").is_file():
                yield from _sources(entry, f"{name}.{entry.name}")
        elif entry.name == "__init__.py":
            yield name, entry
        elif entry.name.endswith(".py"):
            yield f"{name}.{entry.name.removesuffix('.py')}", entry


@functools.cache
def _read(name: str, source: bytes) -> _Module:
    """Reads a module once; several closures share most of theirs."""
    try:
        return _Reader().read(ast.parse(source, filename=name))
    except ValueError as error:
        raise ValueError(f"{name}, {error}") from error


class _Reader:
    """Writes a syntax tree as text that no version of Python changes, and gathers the imports in it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._imports: list[_Import] = []

    def read(self, tree: ast.Module) -> _Module:
        """Reads a whole module; ValueError, beginning with the line, if an import cannot be followed."""
        self._write(tree)
        return _Module("".join(self._parts), tuple(self._imports))

    def _write(self, value: Any) -> None:
        if isinstance(value, ast.AST):
            if isinstance(value, ast.Import | ast.ImportFrom):
                self._imports += _imports(value)
            self._parts.append(f"{type(value).__name__}(")
            for name in _deciding_fields(value._fields):
                self._write_field(name, getattr(value, name, None))
            self._parts.append(")")
        else:
            # `ascii`, because `repr` shows what the Unicode tables of this Python take for printable.
            self._parts.append(ascii(value))

    def _write_field(self, name: str, value: Any) -> None:
        # What is empty is left out: newer versions have fields, all of them empty, that older ones lack.
        if isinstance(value, list):
            if items := list(_deciding_items(value)):
                self._parts.append(f"{name}=[")
                for item in items:
                    self._write(item)
                    self._parts.append(",")
                self._parts.append("]")
        elif value is not None:
            self._parts.append(f"{name}=")
            self._write(value)
            self._parts.append(",")


@functools.cache
def _deciding_fields(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names) - _IDLE_FIELDS))


def _deciding_items(items: Iterable[Any]) -> Iterator[Any]:
    """The items of a list in a syntax tree, without the statements that compute nothing."""
    for item in items:
        match item:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass  # docstrings, of attributes too
            case ast.Assign(targets=[ast.Name(id="__version__")]):
                pass  # a release by itself measures nothing anew
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
                yield from _deciding_items(otherwise)
            case _:
                yield item


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[_Import]:
    if isinstance(node, ast.Import):
        yield from (_Import(alias.name, True) for alias in node.names)
        return
    if node.level or node.module is None:
        raise ValueError(f"line {node.lineno}: a relative import; name the module in full")
    yield _Import(node.module, True)
    for alias in node.names:
        if alias.name == "*" and _is_in(node.module, (PACKAGE,)):
            raise ValueError(f"line {node.lineno}: `import *` does not say what is imported; name it")
        yield _Import(f"{node.module}.{alias.name}", False)
