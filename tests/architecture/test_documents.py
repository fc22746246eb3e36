"""What documents and example configurations say fits the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.config import load_config, parse_yaml, validate
from fairwitness.fur.config import FurSweepConfig
from fairwitness.problems.config import DataConfig
from tests.helpers.job_configs import CONFIGS, SWEEPS, jobs_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_configuration_is_one_of_exactly_one_job(path: Path) -> None:
    assert len(jobs_of(path)) == 1


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_is_named_like_its_configuration(path: Path) -> None:
    assert load_config(FurSweepConfig, path).name == path.stem


def test_the_readmes_configuration_is_valid() -> None:
    (example,) = re.findall(r"```yaml\n(.+?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert validate(FurSweepConfig, parse_yaml(example), "README.md").name == "mine"


def test_the_readme_names_every_configuration() -> None:
    assert CONFIGS
    assert set(re.findall(r"^\| `(\w+\.yaml)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)) == {
        path.name for path in CONFIGS
    }


def test_the_readmes_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"`?make ([a-z-]+)", (ROOT / document).read_text())) <= targets


def test_the_readme_says_how_many_questions_are_held_out() -> None:
    (example,) = re.findall(r"```yaml\n(.+?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    default = DataConfig.model_fields["num_held_out"].default
    assert f"more than {default} questions: {default} are held out" in example
    assert f"num_held_out: {default} " in example


def test_the_help_of_make_organism_says_where_it_trains() -> None:
    (help_line,) = re.findall(r"^organism:.*## (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    (which,) = (
        option for option in get_command(app).commands["organism"].commands["train"].params if option.name == "which"
    )
    assert f"results/{which.default}" in help_line


@pytest.mark.parametrize("command", ["report", "export", "track", "organism"])
def test_the_readmes_subcommands_exist(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"], prog_name="fairwitness")
    assert done.exit_code == 0, done.output
    assert f"fairwitness {command}" in done.output
