"""The trained organism that comes with the package, and the problems of its world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from fairwitness.config import Config, fingerprint, validate
from fairwitness.errors import DataError
from fairwitness.organisms.world import DATA_SET, WorldConfig, make_world, world_problems
from fairwitness.problems.config import DataConfig
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems

WORLD_FILE = "world.json"
"""Beside the weights: the configuration of the world that the model was trained on."""

WorldT = TypeVar("WorldT", bound=Config)


def write_world(folder: Path, world: Config) -> None:
    """Writes a world's configuration beside a model."""
    text = json.dumps(world.model_dump(mode="json"), indent=2)
    (folder / WORLD_FILE).write_text(text + "\n", encoding="utf-8")


def read_world_file(folder: Path, world: type[WorldT], *, command: str) -> WorldT:
    """The configuration of the world of a trained model.

    Args:
        folder: The model's folder.
        world: Class of the configuration.
        command: What trains such a model, for the message.

    Raises:
        DataError: The folder holds no readable world.
        ConfigError: The world's file holds a value that is refused.
    """
    path = folder / WORLD_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); train it with `{command}`") from error
    return validate(world, data, str(path))


def as_data_set(name: str, world: Config, problems: Sequence[Problem]) -> LoadedProblems:
    """The problems of a world, as a data set like any other; another world is another revision."""
    content = [[problem.question, *problem.choices, problem.gold] for problem in problems]
    return LoadedProblems(
        name=name,
        split="",
        problems=tuple(problems),
        refused=(),
        data_revision=fingerprint([world.model_dump(mode="json"), content]),
    )


ORGANISM = DATA_SET
"""Alias of the shipped model and name of its data set."""


def organism_path() -> Path:
    """Folder of the shipped model: configuration, safetensors, tokenizer and world."""
    return Path(__file__).parent / "weights"


def read_world(folder: Path | None = None) -> WorldConfig:
    """The configuration of the world of a trained organism, by default the shipped one.

    Raises:
        DataError: The folder holds no readable world.
        ConfigError: The world's file holds a value that is refused.
    """
    return read_world_file(folder or organism_path(), WorldConfig, command="fairwitness organism train")


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
    world = read_world(Path(config.path) if config.path else None)
    return as_data_set(config.name or DATA_SET, world, world_problems(make_world(world)))
