"""Starts a job: from a configuration file to a finished run and an exit code."""

# Without postponed annotations: those of a job's command line hold its own help.

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairwitness.commands.common import ended, say, set_up, tracking_line
from fairwitness.jobs import JOBS, Job, resolve

if TYPE_CHECKING:
    from fairwitness.config import Config


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


def read_config(job: Job, path: Path, overrides: Sequence[str] = (), pool: str | None = None) -> "Config":
    """A job's configuration with overrides, and the folders of shipped models in place of their aliases.

    Raises:
        ConfigError: See `load_config`.
    """
    from fairwitness.config import load_config

    extra = [f"pool.kind={pool}"] if pool else []
    return ready(load_config(job.config_class, path, [*overrides, *extra]))


def ready(config: "Config") -> "Config":
    """The same configuration, with the folders of shipped models in place of their aliases."""
    from fairwitness.organisms.supplies import with_shipped

    found: Config = with_shipped(config)
    return found


def run_job(job: Job, config: "Config") -> Any:
    """Runs a job and reports; gives its `JobResult`.

    Raises:
        FairwitnessError: It cannot be run; the message says why.
    """
    from fairwitness.experiment.measure import run_measure

    return run_measure(_measure(job, config), resolve(job.report))


def _measure(job: Job, config: "Config") -> Any:
    from fairwitness.organisms.supplies import supplies

    return resolve(job.measure)(config, supplies())


def start(
    job: Job, config_path: Path, overrides: Sequence[str] = (), *, pool: str | None = None, dry: bool = False
) -> int:
    """Runs a job as a command does, and says what came out.

    `overrides` are `key=value` settings; `pool` is `ray` or `local` instead of what the configuration says; `dry` only
    says what would be run.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration, data or run, 3 no rate is feasible,
        130 interrupted.
    """
    set_up()

    def act() -> int:
        config = read_config(job, config_path, overrides, pool)
        if dry:
            say("dry run: reading models' settings and data sets; nothing is stored")
            for line in _measure(job, config).dry_run():
                say(line)
            return 0
        result = run_job(job, config)
        for line in closing_lines(job, result):
            say(line)
        return int(result.exit_code)

    return ended(act)


def closing_lines(job: Job, result: Any) -> Iterator[str]:
    """What came out of a job, and where it is."""
    yield from result.report.findings
    yield job.counts.format_map(result.counts)
    if result.report.files:
        yield f"report: {result.report.files[0].resolve()}"
    if result.tracking_uri:
        yield tracking_line(result.tracking_uri)
    if result.counts["failed"]:
        yield job.if_failed


def command_of(job: Job) -> Callable[..., None]:
    """The command line of a job."""

    def command(
        config: Annotated[Path, typer.Option(help=f"YAML file; `fairwitness init {job.example}` writes one.")],
        overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
        pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Say what would be run, with time and memory; store nothing.")
        ] = False,
    ) -> None:
        sys.exit(start(job, config, overrides or [], pool=pool and pool.value, dry=bool(dry_run)))

    return command


def main(job: str | Job) -> None:
    """The whole of a script in jobs/: reads the command line, runs the job, ends the process with its exit code."""
    found = JOBS[job] if isinstance(job, str) else job
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=found.help)(command_of(found))
    typer.main.get_command(app)()
