"""Replies kept on disk by the hash of what was asked, so that nothing is asked twice."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fairwitness.config import fingerprint
from fairwitness.judges.protocol import ChatModel, ChatPrompt, ChatReply, Placed

log = logging.getLogger(__name__)


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    is_cut: bool


class ReplyCache:
    """A folder with a file per reply: `<folder>/<judge>/<first two digits>/<hash>.json`. Failures are not kept."""

    def __init__(self, folder: Path | str) -> None:
        """Names the folder; it is made with the first reply."""
        self.folder = Path(folder)
        self._has_warned = False

    def path(self, judge_key: str, prompt: ChatPrompt, max_tokens: int) -> Path:
        """The file of a reply. It depends on all that the reply depends on."""
        digest = fingerprint([judge_key, prompt.system, prompt.user, max_tokens])
        return self.folder / judge_key[:16] / digest[:2] / f"{digest}.json"

    def get(self, path: Path) -> ChatReply | None:
        """The reply in a file; None where there is none, or none that can be read."""
        try:
            stored = _Stored.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            log.warning("%s: is not a stored reply; the judge is asked again", path)
            return None
        return ChatReply(**stored.model_dump(), from_cache=True)

    def put(self, path: Path, reply: ChatReply) -> None:
        """Keeps a reply that has a text, atomically. Where it cannot be written, it is said once and work goes on."""
        if reply.text is None:
            return
        stored = _Stored(
            text=reply.text,
            num_prompt_tokens=reply.num_prompt_tokens,
            num_completion_tokens=reply.num_completion_tokens,
            is_cut=reply.is_cut,
        )
        try:
            _write(path, stored.model_dump_json().encode())
        except OSError as error:
            if not self._has_warned:
                log.warning("%s: replies cannot be kept (%s); going on without", self.folder, error)
            self._has_warned = True


class CachedModel:
    """A `ChatModel` that asks another one only what it has not answered before."""

    def __init__(self, inner: ChatModel, cache: ReplyCache) -> None:
        """Puts a cache before a model."""
        self._inner, self._cache = inner, cache

    @property
    def name(self) -> str:
        """The model's."""
        return self._inner.name

    @property
    def key(self) -> str:
        """The model's."""
        return self._inner.key

    def replies(self, prompts: Sequence[ChatPrompt], *, max_tokens: int) -> Iterator[Placed]:
        """Stored replies first, then the others as they come; of equal prompts one is asked.

        Raises:
            ConfigError: See `ChatModel.replies`.
        """
        waiting: dict[Path, list[int]] = {}
        for position, prompt in enumerate(prompts):
            path = self._cache.path(self.key, prompt, max_tokens)
            known = None if path in waiting else self._cache.get(path)
            if known is None:
                waiting.setdefault(path, []).append(position)
            else:
                yield Placed(position, known)
        paths = list(waiting)
        asked = [prompts[waiting[path][0]] for path in paths]
        for place, reply in self._inner.replies(asked, max_tokens=max_tokens):
            self._cache.put(paths[place], reply)
            first, *others = waiting[paths[place]]
            yield Placed(first, reply)
            again = reply if reply.text is None else _repeated(reply)
            yield from (Placed(other, again) for other in others)


def _repeated(reply: ChatReply) -> ChatReply:
    return ChatReply(
        reply.text, None, reply.num_prompt_tokens, reply.num_completion_tokens, from_cache=True, is_cut=reply.is_cut
    )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".reply-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
