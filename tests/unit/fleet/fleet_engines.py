"""Small engines for the tests of the pools; workers import this module by name."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwitness.errors import DataError, ItemError, ModelError


class Adder:
    """Adds a number to every item. Writes a line to a file when it is closed."""

    def __init__(self, amount: int, closed_path: str) -> None:
        self._amount = amount
        self._closed_path = closed_path

    def run(self, item: int) -> int:
        return item + self._amount

    def close(self) -> None:
        if self._closed_path:
            with Path(self._closed_path).open("a", encoding="utf-8") as file:
                file.write(f"{self._amount}\n")


@dataclass(frozen=True)
class AdderSpec:
    """Recipe for `Adder`."""

    amount: int
    closed_path: str = ""

    def build(self) -> Adder:
        return Adder(self.amount, self.closed_path)


@dataclass(frozen=True)
class FailingSpec:
    """A recipe that cannot be built; `kind` says how."""

    kind: str

    def build(self) -> Adder:
        if self.kind == "model":
            raise ModelError("model.safetensors is missing; give the folder of a model")
        if self.kind == "data":
            raise DataError("facts.jsonl is empty; add records")
        if self.kind == "death":
            os._exit(3)
        raise OSError("disk\nbroken")


class Doer:
    """Does what the item says; items are tuples of a verb and its arguments."""

    def run(self, item: tuple[Any, ...]) -> Any:
        verb, *arguments = item
        return getattr(self, f"_{verb}")(*arguments)

    def close(self) -> None:
        """Holds nothing."""

    def _echo(self, value: Any) -> Any:
        return value

    def _sleep(self, duration_s: float, value: Any) -> Any:
        time.sleep(duration_s)
        return value

    def _refuse(self) -> None:
        raise ItemError("the CoT has no sentence")

    def _break(self) -> None:
        raise KeyError("no such\nlayer")

    def _unpicklable(self) -> Any:
        return threading.Lock()

    def _see(self) -> dict[str, Any]:
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}

    def _meet(self, folder: str, number: int) -> dict[str, Any]:
        """Waits until `number` processes are here, then says what this one sees. One item per worker."""
        (Path(folder) / str(os.getpid())).touch()
        until_s = time.monotonic() + 30.0
        while len(list(Path(folder).iterdir())) < number:
            if time.monotonic() > until_s:
                raise TimeoutError(f"fewer than {number} workers")
            time.sleep(0.02)
        return self._see()

    def _die_once(self, marker: str) -> str:
        """Ends the process, except when it has done so before."""
        path = Path(marker)
        if path.exists():
            return "alive"
        path.touch()
        os._exit(1)

    def _die(self) -> None:
        os._exit(1)


@dataclass(frozen=True)
class DoerSpec:
    """Recipe for `Doer`; specs with different numbers differ."""

    number: int = 0

    def build(self) -> Doer:
        return Doer()
