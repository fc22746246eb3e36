"""A model behind an endpoint: many requests at a time, retried, paced, counted and kept within a budget."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import random
import socket
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from fairwitness.config import fingerprint
from fairwitness.errors import ConfigError
from fairwitness.judges.budget import Budget
from fairwitness.judges.config import EndpointConfig
from fairwitness.judges.protocol import ChatPrompt, ChatReply, Placed
from fairwitness.judges.wire import Trouble, Wire, wait_s


class Pacer:
    """Spaces the starts of requests evenly, and lets none start while the server asks for a pause."""

    def __init__(self, per_minute: float | None) -> None:
        """Allows `per_minute` starts a minute; None for no limit. To be used inside one event loop."""
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._next_s = self._held_until_s = float("-inf")

    async def turn(self) -> None:
        """Returns when a request may start."""
        loop = asyncio.get_running_loop()
        start_s = max(loop.time(), self._next_s)
        self._next_s = start_s + self._interval_s
        await asyncio.sleep(start_s - loop.time())
        while (left_s := self._held_until_s - loop.time()) > 0:
            await asyncio.sleep(left_s)

    def hold(self, seconds: float) -> None:
        """Lets no request start for this long."""
        self._held_until_s = max(self._held_until_s, asyncio.get_running_loop().time() + seconds)


MAX_FRUITLESS = 20
"""Prompts that may fail before any has succeeded; the rest is then not asked."""

PROBE_TIMEOUT_S = 5.0

_Result = Placed | BaseException | None


class Endpoint:
    """A `ChatModel` over the OpenAI chat completions protocol, through the official client."""

    def __init__(self, config: EndpointConfig) -> None:
        """Reads the key.

        Raises:
            ConfigError: The environment variable named for it is not set, or holds what cannot be a key.
        """
        self._config, self._api_key = config, read_key(config)
        self._budget = Budget(config.max_cost)

    @property
    def name(self) -> str:
        """For rows and reports."""
        return self._config.shown_name

    @property
    def key(self) -> str:
        """Hash of address, model and temperature."""
        return endpoint_key(self._config)

    def replies(self, prompts: Sequence[ChatPrompt], *, max_tokens: int) -> Iterator[Placed]:
        """See `ChatModel.replies`. Requests go on in a thread of their own while the caller handles replies.

        Raises:
            ConfigError: The endpoint refuses the key, does not know the model, or nothing listens at the address.
        """
        if not prompts:
            return
        session = _Session(self._config, self._api_key, self._budget, prompts, max_tokens)
        thread = threading.Thread(target=session.run, name="judge-requests", daemon=True)
        thread.start()
        try:
            while (result := session.results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            session.cancel()
            thread.join()


def endpoint_key(config: EndpointConfig) -> str:
    """Hash of address, model and temperature."""
    return fingerprint(["openai", config.base_url, config.model, config.temperature])


def read_key(config: EndpointConfig) -> str | None:
    """The key from the environment; None for a server that wants none.

    Raises:
        ConfigError: The variable is not set, or holds what cannot be a key.
    """
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise ConfigError(
            f"judge {config.shown_name}: the environment variable {config.api_key_env} holds no key for "
            f"{config.base_url}; export it, name another one in api_key_env, or set api_key_env: null for a server "
            "that wants none"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"judge {config.shown_name}: the environment variable {config.api_key_env} holds spaces, line breaks or "
            "characters that no key has; export the key alone"
        )
    return key


class _Session:
    """One call of `replies`: a number of workers that take prompts in their order."""

    def __init__(
        self, config: EndpointConfig, key: str | None, budget: Budget, prompts: Sequence[ChatPrompt], max_tokens: int
    ) -> None:
        self._config, self._key, self._budget = config, key, budget
        self._prompts, self._max_tokens = prompts, max_tokens
        self._prices = config.prices
        self.results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._num_answered = self._num_fruitless = 0
        self._last_error = ""
        self._is_cancelled = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Asks all prompts; the last result is None, or the error that ended it. Runs in its own thread."""
        try:
            asyncio.run(self._ask_all())
        except asyncio.CancelledError:
            self.results.put(None)
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self.results.put(error)
        else:
            self.results.put(None)

    def cancel(self) -> None:
        """Ends requests that are under way; does nothing when there are none."""
        self._is_cancelled.set()
        if self._loop is not None and self._main is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._main.cancel)

    async def _ask_all(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_cancelled.is_set():
            return
        self._settled, self._pacer = asyncio.Condition(), Pacer(self._config.requests_per_minute)
        self._wire = Wire(self._config, self._key)
        pending = iter(enumerate(self._prompts))
        num_workers = min(self._config.max_concurrency, len(self._prompts))
        workers = [asyncio.create_task(self._work(pending)) for _ in range(num_workers)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._wire.close()

    async def _work(self, pending: Iterator[tuple[int, ChatPrompt]]) -> None:
        for position, prompt in pending:
            self.results.put(Placed(position, await self._reply(position, prompt)))

    async def _reply(self, position: int, prompt: ChatPrompt) -> ChatReply:
        if self._num_answered == 0 and self._num_fruitless >= MAX_FRUITLESS:
            reason = (
                f"{self._config.base_url} gave no reply to {self._num_fruitless} prompts (last: {self._last_error})"
            )
            return ChatReply(None, f"not asked: {reason}")
        bound = self._prices.bound(prompt.system + prompt.user, self._max_tokens)
        if not await self._may_spend(bound):
            return ChatReply(None, self._budget.refusal())
        reply = ChatReply(None, "interrupted")
        try:
            reply = await self._persist(position, prompt, bound)
        finally:
            async with self._settled:
                self._budget.settle(bound, reply.cost)
                self._settled.notify_all()
        if reply.error is None:
            self._num_answered += 1
        else:
            self._num_fruitless += 1
            self._last_error = reply.error
        return reply

    async def _may_spend(self, bound: float) -> bool:
        async with self._settled:
            while (answer := self._budget.ask(bound)) == "wait":
                await self._settled.wait()
            return answer == "go"

    async def _persist(self, position: int, prompt: ChatPrompt, bound: float) -> ChatReply:
        """Attempts until there is a reply, no attempt would help, or all are used up."""
        rng = random.Random(position)
        attempt = 0
        while True:
            attempt += 1
            await self._pacer.turn()
            found = await self._wire.attempt(prompt, self._max_tokens)
            if isinstance(found, ChatReply):
                return self._priced(found, bound)
            if found.is_fatal and self._num_answered == 0:
                raise ConfigError(f"judge {self._config.shown_name} at {self._config.base_url}: {found.message}")
            if not found.is_passing or attempt > self._config.max_retries:
                return await self._given_up(found, attempt)
            pause_s = wait_s(attempt, found, max_wait_s=self._config.max_wait_s, rng=rng)
            if pause_s is None:
                asked = f"the server asks for a wait of {found.retry_after_s:g} s, above max_wait_s"
                return await self._given_up(found._replace(message=f"{found.message}; {asked}"), attempt)
            if found.retry_after_s is not None:
                self._pacer.hold(pause_s)
            await asyncio.sleep(pause_s)

    def _priced(self, reply: ChatReply, bound: float) -> ChatReply:
        if reply.num_prompt_tokens is None or reply.num_completion_tokens is None:
            return replace(reply, cost=bound)  # a server that counts no tokens must not escape the budget
        return replace(reply, cost=self._prices.cost(reply.num_prompt_tokens, reply.num_completion_tokens))

    async def _given_up(self, trouble: Trouble, num_attempts: int) -> ChatReply:
        if self._num_answered == 0 and trouble.is_connection:
            await asyncio.to_thread(self._must_listen)
        times = f" ({num_attempts} attempts)" if num_attempts > 1 else ""
        return ChatReply(None, f"{trouble.message}{times}")

    def _must_listen(self) -> None:
        parts = urlsplit(self._config.base_url)
        if parts.scheme in urllib.request.getproxies():
            return
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), PROBE_TIMEOUT_S).close()
        except OSError as error:
            raise ConfigError(
                f"judge {self._config.shown_name}: nothing answers at {self._config.base_url} ({error}); start the "
                "server, or correct base_url"
            ) from error
