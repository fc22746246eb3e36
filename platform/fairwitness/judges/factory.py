"""From a configuration to a model that answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairwitness.errors import ConfigError
from fairwitness.fleet.pool import Pool
from fairwitness.judges.cache import CachedModel, ReplyCache
from fairwitness.judges.config import EndpointConfig, JudgeConfig, LocalModelConfig
from fairwitness.judges.endpoint import Endpoint, endpoint_key, read_key
from fairwitness.judges.local import LocalModel, chat_facts, local_key
from fairwitness.judges.protocol import ChatModel


@contextmanager
def make_chat_model(config: JudgeConfig, *, cache_dir: Path, pool: Pool | None) -> Iterator[ChatModel]:
    """The model of a configuration, with its cache in `cache_dir` unless the configuration names a folder.

    The pool is for a local model; an endpoint does not use it.

    Raises:
        ConfigError: No key, rules (which write no text), or a local model without a pool.
        ModelError: A local model cannot be used, for example because it has no chat template.
    """
    check_usable(config)
    cache = ReplyCache(config.cache_dir or cache_dir)
    if isinstance(config, EndpointConfig):
        yield CachedModel(Endpoint(config), cache)
        return
    assert isinstance(config, LocalModelConfig)
    if pool is None:
        raise ConfigError(f"judge {config.shown_name}: kind local runs on the pool, and this job has none")
    yield CachedModel(LocalModel(config, pool), cache)


def check_usable(config: JudgeConfig) -> str:
    """Refuses a model that cannot write texts here and now, and gives its `ChatModel.key`; loads and sends nothing.

    Raises:
        ConfigError: No key, or rules.
        ModelError: A local model cannot be used as it is.
    """
    match config:
        case EndpointConfig():
            read_key(config)
            return endpoint_key(config)
        case LocalModelConfig():
            return local_key(config, chat_facts(config.model))
        case _:
            raise ConfigError(
                f"judge {config.shown_name}: rules write no text; set kind: openai or kind: local for this job"
            )
