"""Help, lists and refused settings come before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairwitness.jobs import JOBS

HEAVY = ("torch", "transformers", "ray", "mlflow", "pandas", "scipy", "spacy", "openai", "datasets", "shap", "jinja2")
LIGHTER = (*HEAVY, "pyarrow", "numpy", "yaml")

CODE = """
import sys
sys.argv = ["fairwitness", *sys.argv[1:]]
from fairwitness.cli import main
try:
    main()
except SystemExit as ended:
    code = ended.code
print("exit", code)
print("loaded", *(name for name in {names!r} if name in sys.modules))
"""


def ended(names: tuple[str, ...], *words: str) -> tuple[str, list[str]]:
    """The exit code of a command in a process of its own, and which of the modules it has imported."""
    script = CODE.format(names=names)
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    code, loaded = done.stdout.splitlines()[-2:]
    return code.removeprefix("exit "), loaded.split()[1:]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["sweep", "--help"], ["init"]], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    assert ended(LIGHTER, *words) == ("0", [])


@pytest.mark.parametrize("command", [job.command for job in JOBS.values()])
def test_a_typo_is_refused_before_anything_heavy_is_imported(command: str, tmp_path: Path) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("nmae: x", encoding="utf-8")
    assert ended(HEAVY, command, "--config", str(path)) == ("2", [])
