"""One attempt at the OpenAI chat completions protocol: a reply, or what went wrong. No retries here."""

from __future__ import annotations

import email.utils
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import openai
from pydantic import BaseModel, Field, ValidationError

from fairwitness.judges.config import EndpointConfig
from fairwitness.judges.protocol import ChatPrompt, ChatReply
from fairwitness.redact import HIDDEN, redact_text

FIRST_WAIT_S = 0.5
PASSING_STATUSES = frozenset({408, 409, 425, 429})
FATAL_STATUSES = frozenset({401, 403, 404})


class Trouble(NamedTuple):
    """Why an attempt failed.

    Attributes:
        message: One line, without credentials.
        is_passing: Whether another attempt may help.
        is_fatal: Whether no prompt can succeed.
        retry_after_s: Seconds that the server asks to wait; None where it says nothing.
        is_connection: Whether there was no complete response at all.
    """

    message: str
    is_passing: bool = True
    is_fatal: bool = False
    retry_after_s: float | None = None
    is_connection: bool = False


def status_trouble(status: int, code: str | None, message: str, headers: Mapping[str, str], now: datetime) -> Trouble:
    """What an error status means.

    Args:
        status: HTTP status, 400 or above.
        code: The endpoint's own error code, where it names one.
        message: What it says, in one line.
        headers: Headers of the response, with names in lower case.
        now: The time, for a date in `Retry-After`.
    """
    text = f"HTTP {status}" + (f": {message}" if message else "")
    if code == "insufficient_quota":
        return Trouble(f"{text}; the account has no credit left", is_passing=False, is_fatal=True)
    if status in FATAL_STATUSES:
        return Trouble(f"{text}; check base_url, model and the key", is_passing=False, is_fatal=True)
    is_passing = status in PASSING_STATUSES or status >= 500
    return Trouble(text, is_passing=is_passing, retry_after_s=retry_after_s(headers, now) if is_passing else None)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds of `Retry-After-Ms` or `Retry-After` (a number, or a date), at least 0; None where there is none."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    try:
        until = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())


def wait_s(attempt: int, trouble: Trouble, *, max_wait_s: float, rng: random.Random) -> float | None:
    """Seconds until the next attempt: what the server asks for, else doubling from half a second with a random part.

    Args:
        attempt: Attempts made, from 1.
        trouble: Why the last one failed.
        max_wait_s: Longest wait of our own.
        rng: Source of the random part, so that many requests do not come back at the same moment.

    Returns:
        None where the server asks for a wait above `max_wait_s`.
    """
    if trouble.retry_after_s is not None:
        return trouble.retry_after_s if trouble.retry_after_s <= max_wait_s else None
    longest = FIRST_WAIT_S * 2.0 ** min(attempt - 1, 30)
    return min(max_wait_s, longest * rng.uniform(0.75, 1.0))


MAX_MESSAGE_CHARS = 300

NO_KEY = "none"
"""Given to the client where there is no key; without one it would look for the user's in the environment."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class Wire:
    """A connection to one endpoint; belongs to the event loop that uses it."""

    def __init__(self, config: EndpointConfig, key: str | None) -> None:
        """Prepares; nothing is sent yet.

        Args:
            config: The endpoint.
            key: Its key; None sends no `Authorization` at all.
        """
        self._config, self._key = config, key
        self._client = openai.AsyncOpenAI(
            base_url=config.base_url,
            api_key=key or NO_KEY,
            timeout=config.timeout_s,
            max_retries=0,
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.close()

    async def attempt(self, prompt: ChatPrompt, max_tokens: int) -> ChatReply | Trouble:
        """Sends a prompt once. A reply without text is a `ChatReply` with an error: asking again would not help."""
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [*system, {"role": "user", "content": prompt.user}],
            self._config.limit_field: max_tokens,
        }
        if not self._key:
            body["extra_headers"] = {"Authorization": openai.Omit()}
        if self._config.temperature is not None:
            body["temperature"] = self._config.temperature
        try:
            response = await self._client.chat.completions.with_raw_response.create(**body)
            text = response.text
        except openai.APIStatusError as error:
            return self._status(error)
        except openai.APITimeoutError:
            return Trouble(f"no reply within {self._config.timeout_s:g} s")
        except openai.APIConnectionError as error:
            return Trouble(self.clean(f"connection failed ({error.__cause__ or error})"), is_connection=True)
        return self._read(text)

    def clean(self, text: str) -> str:
        """The text in one line, at most 300 characters, without the key or credentials in addresses."""
        line = " ".join(self.without_key(text).split())
        return redact_text(line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…")

    def without_key(self, text: str) -> str:
        """The text with the key hidden, should a server repeat it."""
        return text.replace(self._key, HIDDEN) if self._key else text

    def _status(self, error: openai.APIStatusError) -> Trouble:
        body: Any = error.body
        if isinstance(body, dict):
            code, said = body.get("code"), body.get("message") or body.get("detail") or ""
        else:
            code, said = None, body or ""
        headers = {name.lower(): value for name, value in error.response.headers.items()}
        return status_trouble(error.status_code, code, self.clean(str(said)), headers, datetime.now(UTC))

    def _read(self, text: str) -> ChatReply | Trouble:
        try:
            completion = _Completion.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "body"
            return Trouble(self.clean(f"the reply is not of the protocol ({place}: {first['msg']})"))
        choice, usage = completion.choices[0], completion.usage
        content = choice.message.content
        error_text = None
        if choice.message.refusal and not content:
            error_text = self.clean(f"the model refused: {choice.message.refusal}")
        elif not (content or "").strip():
            error_text = f"the reply holds no text (finish_reason: {choice.finish_reason})"
        return ChatReply(
            None if error_text else self.without_key(content or ""),
            error_text,
            usage.prompt_tokens if usage else None,
            usage.completion_tokens if usage else None,
            is_cut=choice.finish_reason == "length",
        )
