"""A headless Chromium that a test drives over the DevTools protocol, through a pair of pipes and without a network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

WAIT_S = 120.0


def chromium() -> str:
    """The program; skips the test where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on PATH; install it to try pages in a browser")
    return found


class Browser:
    """One window. Downloads go to a folder; everything is gone at the end."""

    def __init__(self, folder: Path, *, width: int = 1000, height: int = 900) -> None:
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True, exist_ok=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
        ]
        options += [
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},{height}",
        ]

        def pipes() -> None:
            # Chromium reads commands from descriptor 3 and answers on 4.
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [chromium(), *options],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        (page,) = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        where = {"behavior": "allow", "downloadPath": str(self.downloads)}
        self._call("Browser.setDownloadBehavior", **where, session=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call("Browser.close", session=None)
            self._process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired, AssertionError):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def open(self, page: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.events.clear()
        self._call("Page.navigate", url=page.as_uri())
        self.wait_for("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + WAIT_S
        while not self.run(script):
            assert time.monotonic() < end, f"not true after {WAIT_S} s: {script}"
            time.sleep(0.05)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses one key, for example `press("Tab", 9)`."""
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text else {}),
            )

    def screenshot(self, path: Path) -> None:
        """Writes what the window shows as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors that the page caused since it was opened: uncaught exceptions, refused scripts, failed loads."""
        found = [e["params"]["entry"]["text"] for e in self.events if e["method"] == "Log.entryAdded"]
        return found + [json.dumps(e["params"]) for e in self.events if e["method"] == "Runtime.exceptionThrown"]

    def downloaded(self) -> Path:
        """The one file that was saved, once it is complete."""
        end = time.monotonic() + WAIT_S
        while True:
            files = [path for path in self.downloads.iterdir() if path.suffix != ".crdownload"]
            if files and not list(self.downloads.glob("*.crdownload")):
                (file,) = files
                return file
            assert time.monotonic() < end, "nothing was saved"
            self.run("1")
            time.sleep(0.05)

    def _call(self, method: str, *, session: str | None = "own", **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session == "own" and self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], WAIT_S)
            assert ready, f"the browser said nothing for {WAIT_S} s"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
