"""The trained organism that comes with the package, and the problems of its world."""

from __future__ import annotations

from pathlib import Path

from fairwitness.organisms.world import DATA_SET, WorldConfig, make_world, world_problems
from fairwitness.organisms.world_file import as_data_set, read_world_file
from fairwitness.problems.config import DataConfig
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems

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
