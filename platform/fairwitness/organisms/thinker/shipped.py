"""The trained thinker that comes with the package, and its problems as a data set."""

from __future__ import annotations

from pathlib import Path

from fairwitness.organisms.shipped import as_data_set, read_world_file
from fairwitness.organisms.thinker.world import DATA_SET, ThinkerWorldConfig, thinker_problems
from fairwitness.problems.config import DataConfig
from fairwitness.problems.records import LoadedProblems

THINKER = DATA_SET
"""Alias of the shipped model and name of its data set."""


def thinker_path() -> Path:
    """Folder of the shipped model: configuration, safetensors, tokenizer and world."""
    return Path(__file__).parent / "weights"


def read_thinker_world(folder: Path | None = None) -> ThinkerWorldConfig:
    """The world's configuration of a trained thinker, by default the shipped one.

    Raises:
        DataError: The folder holds no readable world.
        ConfigError: The world's file holds a value that is refused.
    """
    command = "fairwitness organism train --which thinker"
    return read_world_file(folder or thinker_path(), ThinkerWorldConfig, command=command)


def load_thinker_problems(config: DataConfig, seed: int) -> LoadedProblems:
    """The thinker's problems, as a data set like any other.

    Args:
        config: Its `path`, if given, is the folder of another trained thinker.
        seed: Not used: the world decides about choices and their order.

    Raises:
        DataError: See `read_thinker_world`.
    """
    del seed
    world = read_thinker_world(Path(config.path) if config.path else None)
    return as_data_set(config.name or DATA_SET, world, thinker_problems(world))
