"""What a job says of the place of its results."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fairwitness.config import Config
from fairwitness.experiment.job import JobRun
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory


@pytest.mark.parametrize(("folder", "warns"), [("results", False), ("working_dir_files/_ray_pkg_1/results", True)])
def test_results_in_rays_copy_of_the_working_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str, warns: bool
) -> None:
    caplog.set_level(logging.INFO, "fairwitness")
    run = RunDirectory(tmp_path / folder, "demo")
    with run.opened() as store:
        job = JobRun("fur_sweep", Config(), run, store, TrackingConfig(enabled=False), count=dict)
        with job.started():
            pass
    assert f"run demo: results go to {run.path}" in caplog.messages
    assert any("set output.dir to a path that stays" in line for line in caplog.messages) is warns
