"""Settings of where results are written and shown."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from fairwitness.config import Config

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


RunName = Annotated[str, Field(pattern=_NAME.pattern)]
"""Name of a run and of its directory."""


class OutputConfig(Config):
    """Where results are written."""

    dir: str = Field("results", pattern=r"^[^\x00]+$")
    """Folder of all runs; this run is in `<dir>/<name>`."""


class TrackingConfig(Config):
    """Where a job is shown. Credentials of a server come from MLFLOW_TRACKING_USERNAME and _PASSWORD or _TOKEN."""

    enabled: bool = True
    """False: nothing is logged to MLflow; results are in the store all the same."""
    uri: str | None = None
    """Tracking URI of MLflow; none: the SQLite file `mlflow.db` in the output directory."""
    experiment: str = Field(default="fairwitness", min_length=1)
    """Name of the experiment; made when it is missing."""
    timeout_s: int = Field(default=10, ge=1, le=600)
    """Seconds that one request to a server may take before tracking is given up for this job."""
