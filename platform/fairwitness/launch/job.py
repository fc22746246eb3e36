"""What a job in jobs/ is: its configuration, what it does, what it says in the end, and its command line."""

# Without postponed annotations: those of a job's command line hold its own help.

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import typer

from fairwitness.config import Config, load_config
from fairwitness.experiment.job import JobResult, Report
from fairwitness.launch.common import ended, say, set_up, tracking_line, with_organism
from fairwitness.report.build import build_report

ConfigT = TypeVar("ConfigT", bound=Config)
ResultT = TypeVar("ResultT", bound=JobResult)


class PoolKind(StrEnum):
    """Where workers run."""

    RAY = "ray"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Job(Generic[ConfigT, ResultT]):
    """A job: called with a configuration file, it runs and gives its exit code.

    Attributes:
        help: What it does, in a sentence.
        config: Its configuration class.
        run: Does it.
        counts: Line with the number of items: ok, skipped, failed, refused.
        if_failed: Line for when items failed.
        findings: What came out, a line each.
        dry_run: Lines that say what would be run; None where the job has no such thing.
        dry_run_help: What it says, in a sentence.
        examples: Where examples of its configuration are.
    """

    help: str
    config: type[ConfigT]
    run: Callable[[ConfigT], ResultT]
    counts: str
    if_failed: str
    findings: Callable[[ResultT], Sequence[str]] = lambda result: result.report.findings
    dry_run: Callable[[ConfigT], Iterable[str]] | None = None
    dry_run_help: str = ""
    examples: str = "jobs/configs"

    def __call__(
        self, config_path: Path, overrides: Sequence[str], *, pool: str | None = None, dry: bool = False
    ) -> int:
        """Runs the job.

        Args:
            config_path: YAML file of its configuration.
            overrides: `key=value` settings.
            pool: `ray` or `local` instead of what the configuration says.
            dry: Only say what would be run.

        Returns:
            The exit code: 0 done, 1 some items failed, 2 bad configuration, data or run, 3 no rate is feasible,
            130 interrupted.
        """
        set_up()
        return ended(lambda: self._run(self.read(config_path, overrides, pool), dry=dry))

    def read(self, config_path: Path, overrides: Sequence[str], pool: str | None = None) -> ConfigT:
        """The configuration with overrides, and the organism's alias replaced by its folder.

        Raises:
            ConfigError: See `load_config`.
        """
        extra = [f"pool.kind={pool}"] if pool else []
        config: ConfigT = with_organism(load_config(self.config, config_path, [*overrides, *extra]))
        return config

    def closing_lines(self, result: ResultT) -> Iterator[str]:
        """What came out, and where it is."""
        yield from self.findings(result)
        yield self.counts.format_map(result.counts)
        yield f"report: {result.report.files[0].resolve()}"
        if result.tracking_uri:
            yield tracking_line(result.tracking_uri)
        if result.counts["failed"]:
            yield self.if_failed

    def main(self) -> None:
        """Reads the command line of a script, runs the job and ends the process with its exit code."""

        def job(
            config: Annotated[Path, typer.Option(help=f"YAML file; see {self.examples}.")],
            overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
            pool: Annotated[PoolKind | None, typer.Option(help="Overrides pool.kind of the configuration.")] = None,
            dry_run: Annotated[bool, typer.Option("--dry-run", help=self.dry_run_help)] = False,
        ) -> None:
            sys.exit(self(config, overrides or [], pool=pool and pool.value, dry=bool(dry_run)))

        app = typer.Typer(add_completion=False)
        app.command(help=self.help)(job)
        command = typer.main.get_command(app)
        if self.dry_run is None:
            command.params = [option for option in command.params if option.name != "dry_run"]
        command()

    def _run(self, config: ConfigT, *, dry: bool) -> int:
        if dry and self.dry_run is not None:
            for line in self.dry_run(config):
                say(line)
            return 0
        result = self.run(config)
        for line in self.closing_lines(result):
            say(line)
        return result.exit_code


def make_report(run_path: Path) -> Report:
    """Makes the report of a run directory."""
    paths = build_report(run_path)
    return Report(
        (paths.html, *paths.csv.values(), *paths.plots.values()), paths.findings, paths.is_feasible, paths.cautions
    )
