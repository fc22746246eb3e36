"""The trained organism that comes with the package, and the problems of its world."""

from __future__ import annotations

import json
from pathlib import Path

from fairwitness.config import fingerprint, validate
from fairwitness.errors import DataError
from fairwitness.organisms.world import DATA_SET, WorldConfig, make_world, world_problems
from fairwitness.problems.config import DataConfig
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems

ORGANISM = DATA_SET
"""Alias of the shipped model and name of its data set."""

WORLD_FILE = "world.json"
"""Beside the weights: the configuration of the world that the model was trained on."""


def organism_path() -> Path:
    """Folder of the shipped model: configuration, safetensors, tokenizer and world."""
    return Path(__file__).parent / "weights"


def write_world(folder: Path, world: WorldConfig) -> None:
    """Writes the world's configuration beside a model."""
    text = json.dumps(world.model_dump(mode="json"), indent=2)
    (folder / WORLD_FILE).write_text(text + "\n", encoding="utf-8")


def read_world(folder: Path | None = None) -> WorldConfig:
    """The configuration of the world of a trained organism, by default the shipped one.

    Raises:
        DataError: The folder holds no readable world.
        ConfigError: The world's file holds a value that is refused.
    """
    path = (folder or organism_path()) / WORLD_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); train it with `fairwitness organism train`") from error
    return validate(WorldConfig, data, str(path))


def organism_problems(folder: Path | None = None) -> list[Problem]:
    """All problems about the told people of a trained organism's world, faithful and unfaithful ones mixed.

    Raises:
        DataError: See `read_world`.
    """
    return world_problems(make_world(read_world(folder)))


def load_organism_problems(config: DataConfig, seed: int) -> LoadedProblems:
    """The problems of the organism's world, as a data set like any other.

    Args:
        config: Its `path`, if given, is the folder of another trained organism.
        seed: Not used: the world decides about choices and their order.

    Raises:
        DataError: See `read_world`.
    """
    del seed
    folder = Path(config.path) if config.path else None
    world = read_world(folder)
    problems = world_problems(make_world(world))
    content = [[problem.question, *problem.choices, problem.gold] for problem in problems]
    return LoadedProblems(
        name=config.name or DATA_SET,
        split="",
        problems=tuple(problems),
        refused=(),
        data_revision=fingerprint([world.model_dump(mode="json"), content]),
    )
