"""A local server of the chat completions protocol that does as a test says: replies, refuses, breaks off, or hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Action:
    """What the server does with one request.

    Attributes:
        status: HTTP status.
        body: Sent as it is.
        headers: Further headers.
        cut_at: Bytes of the body after which the connection is closed; None for the whole body.
        delay_s: Seconds before anything is sent.
        drop: Close the connection without a word.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    delay_s: float = 0.0
    drop: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    at_s: float
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def user(self) -> str:
        """The user's text."""
        return str(self.body["messages"][-1]["content"])


def completion(text: str | None, *, prompt_tokens: int = 10, completion_tokens: int = 5, **changes: Any) -> bytes:
    """The body of a good reply; `changes` replace keys of its choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **changes}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(whole).encode()


def refusal(status: int, message: str, *, code: str | None = None, **headers: str) -> Action:
    """An error as OpenAI writes it."""
    body = json.dumps({"error": {"message": message, "code": code, "type": "x", "param": None}}).encode()
    return Action(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


Script = Callable[[Asked, int], Action]
"""From a request, and how often its user's text has come before, to what the server does."""


class ChatServer:
    """The server.

    Attributes:
        url: Its base URL.
        asked: All requests so far, in the order they came.
        most_at_once: Largest number of requests under way at a time.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, asked: Asked) -> Action:
        with self._lock:
            times = sum(before.user == asked.user for before in self.asked)
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        return self.script(asked, times)

    def leave(self) -> None:
        with self._lock:
            self._at_once -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class _Handler(BaseHTTPRequestHandler):
    owner: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        action = self.owner.take(Asked(time.monotonic(), content, headers))
        try:
            self._do(action)
        except OSError:
            self.close_connection = True  # the client went away
        finally:
            self.owner.leave()

    def _do(self, action: Action) -> None:
        self.owner.stopping.wait(action.delay_s)
        if action.drop:
            self.close_connection = True
            return
        self.send_response(action.status)
        for name, value in {"Content-Type": "application/json", **action.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(action.body)))
        self.end_headers()
        self.wfile.write(action.body[: action.cut_at])
        if action.cut_at is not None:
            self.wfile.flush()
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def chat_server(script: Script) -> Iterator[ChatServer]:
    """Runs a server for the length of a block."""
    server = ChatServer(script)
    server.start()
    try:
        yield server
    finally:
        server.stop()
