"""The directory of one run: where everything lies, who writes it, and what changed since the last time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow.compute as pc
import yaml

from fairwitness.config import Config
from fairwitness.errors import ConfigError, StoreError
from fairwitness.records.config import _NAME
from fairwitness.records.parts import unwritable
from fairwitness.records.store import Store, one_of
from fairwitness.redact import redact
from fairwitness_schemas import Table

WITHOUT_EFFECT = ("engine", "pool", "tracking")
"""Groups of settings that change no result."""


class RunDirectory:
    """Paths, lock and resolved configuration of the run `<output_dir>/<name>`. Making the object touches no file."""

    def __init__(self, output_dir: Path | str, name: str) -> None:
        """Names a run directory.

        Raises:
            ConfigError: The name is not made of letters, digits, dots, dashes and underscores.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"run name {name!r}: use up to 100 letters, digits, '.', '-', '_', a letter or digit first"
            )
        self._place(Path(os.path.expanduser(output_dir)), name)

    def _place(self, output_dir: Path, name: str) -> None:
        self.output_dir = output_dir
        self.name = name
        self.path = output_dir / name

    @classmethod
    def at(cls, path: Path | str) -> RunDirectory:
        """The run directory at an existing path, whatever its name: people rename and copy results.

        Raises:
            StoreError: There is no run.
        """
        if not os.path.isdir(os.path.join(path, "store")):
            raise StoreError(f"{path}: there is no run here; give the directory that holds `store`")
        path = Path(path).resolve()
        run = cls.__new__(cls)
        run._place(path.parent, path.name)
        return run

    @property
    def store_path(self) -> Path:
        """Folder of the tables."""
        return self.path / "store"

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def report_path(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def csv_path(self) -> Path:
        """Folder of the report's tables as CSV."""
        return self.path / "csv"

    @property
    def lock_path(self) -> Path:
        """File that the writing job holds a lock on."""
        return self.path / "lock"

    def store(self, tables: Sequence[Table] = (), *, create: bool = True) -> Store:
        """Opens the run's store, with further tables; to write, hold the lock.

        Raises:
            StoreError: See `Store`.
        """
        return Store(self.store_path, tables, create=create)

    @contextlib.contextmanager
    def opened(self, tables: Sequence[Table] = ()) -> Iterator[Store]:
        """The run's store, with further tables, for the one process that may write it.

        Raises:
            StoreError: See `lock` and `Store`.
        """
        with self.lock(), self.store(tables) as store:
            yield store

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Makes this process the one writer of the run. The operating system frees the lock of a process that dies.

        Raises:
            StoreError: Another job holds it (named by process and host), or the directory cannot be written.
        """
        with self._open_lock() as stream:
            if not _try_lock(stream):
                raise StoreError(
                    f"{self.path}: another job writes this run ({_holder(stream)}); wait for it or choose another name"
                )
            stream.truncate(0)
            since = datetime.now(UTC).isoformat(timespec="seconds")
            stream.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
            stream.flush()
            try:
                yield
            finally:
                stream.truncate(0)
                fcntl.flock(stream, fcntl.LOCK_UN)

    def is_locked(self) -> bool:
        """Whether a job writes this run now."""
        if not self.lock_path.exists():
            return False
        with self._open_lock() as stream:
            free = _try_lock(stream)
            if free:
                fcntl.flock(stream, fcntl.LOCK_UN)
            return not free

    def write_config(self, config: Config, followup: str | None = None) -> Path:
        """Writes a job's resolved configuration, credentials removed, atomically; gives its path.

        `followup` names a job that follows on the run; None for the job that makes it.

        Raises:
            StoreError: It cannot be written.
        """
        text = yaml.safe_dump(redact(config.model_dump(mode="json")), sort_keys=False, allow_unicode=True)
        path = self.config_path if followup is None else self.path / f"config.{followup}.yaml"
        temporary = self.path / f".config-{os.getpid()}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, path)
        except OSError as error:
            raise unwritable(path, error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        return path

    def _open_lock(self) -> IO[str]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return self.lock_path.open("a+", encoding="utf-8")
        except OSError as error:
            raise unwritable(self.lock_path, error) from error


def run_rows(store: Store, *jobs: str) -> list[dict[str, Any]]:
    """The rows of `runs`, the oldest first: one per time that a job was started on the run.

    `jobs` names the jobs wanted; none for the jobs that make a run.
    """
    is_maker = pc.field("is_followup").is_null() | ~pc.field("is_followup")
    wanted = one_of("job", jobs) if jobs else is_maker
    rows: list[dict[str, Any]] = store.read("runs", where=wanted).to_pylist()
    return sorted(rows, key=lambda row: (row["created_at"], row["key"]))


def of_run(row: Mapping[str, Any], column: Literal["scope_key", "cell_key"] = "scope_key") -> pc.Expression | None:
    """The rows of a table that belong to a run: of its scopes or cells, and about its problems; None: all rows.

    `row` is the run's in `runs`; the table has the column of keys asked for, and `problem_key`.
    """
    keys, problems = row.get(f"{column}s"), row.get("problem_keys")
    where = None if keys is None else one_of(column, keys)
    if problems is None:
        return where
    about = one_of("problem_key", problems) | pc.field("problem_key").is_null()
    return about if where is None else where & about


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two rows of `runs`, in sentences for the user; empty when a resumed job is the same.

    Settings without effect on results are left to `describe_harmless`.

    Results measured under other settings, model, data or code have other keys: they stay in the store, and the work
    is done anew.
    """
    old, new = _settings(before), _settings(after)
    lines = [
        f"{key}: {_shown(old, key)} → {_shown(new, key)}"
        for key in _changed_keys(old, new)
        if _group(key) not in WITHOUT_EFFECT
    ]
    for column, what in (("models", "model"), ("data_sets", "data set")):
        was, now = set(before.get(column) or ()), set(after.get(column) or ())
        lines += [f"{what} no longer used: {name}" for name in sorted(was - now)]
        lines += [f"{what} new or changed: {name}" for name in sorted(now - was)]
    if before.get("code_revision") != after.get("code_revision"):
        lines.append(f"code: {before.get('code_revision')} → {after.get('code_revision')}")
    return lines


def describe_harmless(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The changed settings that have no effect on results, in one line: `pool (kind, max_actors)`; empty if none."""
    changed: dict[str, list[str]] = {}
    for key in _changed_keys(_settings(before), _settings(after)):
        if _group(key) in WITHOUT_EFFECT:
            changed.setdefault(_group(key), []).append(key.partition(".")[2])
    return ", ".join(
        f"{group} ({', '.join(filter(None, keys))})" if any(keys) else group for group, keys in changed.items()
    )


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    return _flatten(json.loads(row["config_json"]))


def _changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*old, *new}) if (key in old) != (key in new) or old.get(key) != new.get(key)]


def _group(key: str) -> str:
    return key.partition(".")[0]


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and (value or not prefix):
        pairs = [_flatten(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items()]
        return {key: item for pair in pairs for key, item in pair.items()}
    return {prefix: value}


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "(not set)"


def _try_lock(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{stream.name}: this file system cannot lock files ({error.strerror}); choose another output.dir"
        ) from error
    return True


def _holder(stream: IO[str]) -> str:
    stream.seek(0)
    try:
        found = json.loads(stream.read())
    except ValueError:
        return "it has just started"
    return f"process {found['pid']} on {found['host']} since {found['since']}"
