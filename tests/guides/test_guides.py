"""The code of the guides, run as it is printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from typer.testing import CliRunner

from fairwitness.api import Run
from fairwitness.cli import app
from fairwitness.commands.start import start
from tests.helpers.commands import process_settings_restored
from tests.helpers.sweeps import rows_of, watch_pools

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
DEMO = GUIDES.parents[1] / "jobs" / "configs" / "demo.yaml"


def blocks(guide: str, language: str) -> list[str]:
    """The code blocks of a guide in one language."""
    return re.findall(rf"```{language}\n(.+?)```", (GUIDES / guide).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, Path]]:
    folder = tmp_path_factory.mktemp("extending")
    (source,), (config,) = (blocks("extending.md", language) for language in ("python", "yaml"))
    (folder / "choice_order.py").write_text(source, encoding="utf-8")
    (folder / "choice_order.yaml").write_text(f"{config}output: {{dir: {folder / 'results'}}}\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("choice_order", folder / "choice_order.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["choice_order"] = module
    spec.loader.exec_module(module)
    yield module, folder
    del sys.modules["choice_order"]


def test_the_example_measure_runs_resumes_and_is_shown(
    example: tuple[ModuleType, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, folder = example
    config, run = folder / "choice_order.yaml", folder / "results" / "choice_order"
    with process_settings_restored():
        assert start(module.JOB, config, ["tracking.enabled=false", "data_sets.0.num_problems=3"]) == 0
        said = capsys.readouterr().out
        assert re.search(r"organism on organism: the answer stays in \d+% of 3 problems", said)
        assert "questions: 12 ok, 0 skipped, 0 failed" in said
        watch = watch_pools(monkeypatch)
        # More problems: the three that are there are not asked again.
        assert start(module.JOB, config, ["tracking.enabled=false", "data_sets.0.num_problems=5"]) == 0
        assert [len(item.questions) for item in watch.items] == [8]
    rows = rows_of(run / "store", "choice_order")
    assert len(rows) == 20
    assert {row["status"] for row in rows} == {"ok"}
    kept = pd.DataFrame(rows).groupby("problem_id")["choice"].nunique() == 1
    assert f"stays in {100 * kept.mean():.0f}% of 5 problems" in capsys.readouterr().out
    shown = CliRunner().invoke(app, ["show", str(run)])
    assert shown.exit_code == 0, shown.output
    assert "table choice_order: 20 rows" in shown.output
    exported = CliRunner().invoke(app, ["export", str(run), str(folder / "out")])
    assert exported.exit_code == 0, exported.output
    assert len(pd.read_csv(folder / "out" / "choice_order.csv")) == 20


def test_the_guide_to_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import fairwitness as fw

    small = ["data_sets.0.num_problems=6", "data_sets.0.num_held_out=5", "rates=[1e-3,3e-3]", "pool.kind=local"]
    fw.sweep(DEMO, [*small, "tracking.enabled=false"])
    names: dict[str, object] = {}
    code = "\n".join(blocks("python.md", "python")).replace(
        '"rates": [3e-3],', '"rates": [3e-3], "tracking": {"enabled": False},'
    )
    exec(compile(code, "python.md", "exec"), names)
    run = names["run"]
    assert isinstance(run, Run)
    assert run.result is not None
    assert run.result.exit_code == 0
    assert run.path == tmp_path / "results" / "notebook"
    demo = fw.load("results/demo")
    chosen = demo.rates[demo.rates["chosen"].astype(bool)]
    share = names["share"]
    assert len(chosen) <= 1
    if len(chosen):
        assert share == pytest.approx(chosen["ff_hard_any"].iloc[0])


@pytest.mark.parametrize("frame", re.findall(r"`run\.(\w+)`", (GUIDES / "python.md").read_text(encoding="utf-8")))
def test_the_guide_names_frames_that_there_are(frame: str) -> None:
    from fairwitness.analysis.frames import FRAMES

    assert frame in FRAMES
