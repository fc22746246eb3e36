"""The trained thinker that comes with the package, and its problems as a data set."""

from __future__ import annotations

import json
from pathlib import Path

from fairwitness.config import fingerprint, validate
from fairwitness.errors import DataError
from fairwitness.organisms.thinker.world import DATA_SET, ThinkerWorldConfig, thinker_problems
from fairwitness.problems.config import DataConfig
from fairwitness.problems.records import LoadedProblems

THINKER = DATA_SET
"""Alias of the shipped model and name of its data set."""

WORLD_FILE = "world.json"
"""Beside the weights: the configuration of the model's problems."""


def thinker_path() -> Path:
    """Folder of the shipped model: configuration, safetensors, tokenizer and world."""
    return Path(__file__).parent / "weights"


def write_thinker_world(folder: Path, world: ThinkerWorldConfig) -> None:
    """Writes the world's configuration beside a model."""
    text = json.dumps(world.model_dump(mode="json"), indent=2)
    (folder / WORLD_FILE).write_text(text + "\n", encoding="utf-8")


def read_thinker_world(folder: Path | None = None) -> ThinkerWorldConfig:
    """The world's configuration of a trained thinker, by default the shipped one.

    Raises:
        DataError: The folder holds no readable world.
        ConfigError: The world's file holds a value that is refused.
    """
    path = (folder or thinker_path()) / WORLD_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); train it with `fairwitness organism train --which thinker`"
        ) from error
    return validate(ThinkerWorldConfig, data, str(path))


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
    problems = thinker_problems(world)
    content = [[problem.question, *problem.choices, problem.gold] for problem in problems]
    return LoadedProblems(
        name=config.name or DATA_SET,
        split="",
        problems=tuple(problems),
        refused=(),
        data_revision=fingerprint([world.model_dump(mode="json"), content]),
    )
