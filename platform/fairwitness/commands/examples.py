"""The example configurations: in the wheel they are part of the package, in a checkout they are in jobs/configs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fairwitness.errors import ConfigError
from fairwitness.jobs import JOBS, Job

HEAD = "# fairwitness "
"""How the first line of an example begins; the command's name and what it does follow."""


def folder() -> Traversable:
    """Where the examples are."""
    inside = resources.files("fairwitness") / "configs"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "jobs" / "configs"


def example_jobs() -> Iterator[tuple[str, Job, str]]:
    """Name, job and one-line description of every example, by name."""
    commands = {job.command: job for job in JOBS.values()}
    for entry in sorted(folder().iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            first = entry.read_text(encoding="utf-8").partition("\n")[0]
            command, _, title = first.removeprefix(HEAD).partition(": ")
            yield entry.name.removesuffix(".yaml"), commands[command], title


def example_text(name: str) -> str:
    """An example as it is shipped.

    Raises:
        ConfigError: There is none of that name; names those there are.
    """
    known = {one: None for one, _, _ in example_jobs()}
    if name not in known:
        raise ConfigError(f"{name!r} is no example; there are {', '.join(known)}")
    return (folder() / f"{name}.yaml").read_text(encoding="utf-8")
