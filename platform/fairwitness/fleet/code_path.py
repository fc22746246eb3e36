"""How workers find this package when it runs from its source roots instead of being installed."""

from __future__ import annotations

import importlib.util
import json
import os
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = ("fairwitness", "fairwitness_schemas")
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def package_folders() -> list[Path]:
    """Folders of our packages that are imported from a source root; empty when all are installed."""
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    folders = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders.append(Path(spec.origin).resolve().parent)
    return [folder for folder in folders if folder.parent not in installed]


def python_path(inherited: str | None, folder: Path) -> str:
    """Value of PYTHONPATH for workers: our source roots, then what was there.

    Roots inside `folder`, the driver's working directory, are given relative to it too: on another node Ray unpacks
    the working directory elsewhere and starts workers in it.
    """
    entries: list[str] = []
    for root in (package.parent for package in package_folders()):
        entries.append(str(root))
        if root.is_relative_to(folder):
            entries.append(str(root.relative_to(folder)))
    entries += [entry for entry in (inherited or "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys(entries))


@contextmanager
def exported_python_path() -> Iterator[None]:
    """Sets PYTHONPATH for processes started inside the block."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = python_path(before, Path.cwd())
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def job_runtime_env(environment: Mapping[str, str]) -> dict[str, Any]:
    """Runtime environment to connect with: uploads our packages unless the submitted job already brings its code."""
    folders = package_folders()
    brought = json.loads(environment.get(_JOB_CONFIG) or "{}").get("runtime_env") or {}
    if not folders or brought.keys() & {"working_dir", "py_modules"}:
        return {}
    return {"py_modules": [str(folder) for folder in folders]}


def actor_runtime_env(inherited: str | None) -> dict[str, Any]:
    """Runtime environment for actors on a cluster that this process did not start."""
    if not package_folders():
        return {}
    return {"env_vars": {"PYTHONPATH": python_path(inherited, Path.cwd().resolve())}}
