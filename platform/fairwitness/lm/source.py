"""From what the user named to a local folder: path, hub id, GGUF file, alias."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub import errors as hub_errors
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from fairwitness.errors import ModelError
from fairwitness.lm import gguf
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.digest import folder_revision

SMOLLM2_ALIAS = "smollm2"
# The hub's client raises its HTTP library's own error when there is no connection; which library that is has changed.
_NoConnection: type[Exception] = hub_errors.HTTPError  # type: ignore[attr-defined]
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_PLAIN_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken")


@dataclass(frozen=True)
class ModelSource:
    """Where a model's files lie on this machine.

    Attributes:
        folder: Folder with `config.json`, tokenizer files and (if asked for) safetensors weights.
        revision: Commit of a hub model; `sha256-…` over the files of a local one.
    """

    folder: Path
    revision: str


def resolve_source(config: ModelConfig) -> ModelSource:
    """Finds a model's files; of a hub model it fetches configuration and tokenizer, unless the hub is switched off.

    Raises:
        ModelError: Missing path, unknown hub id, hub switched off, pickled weights only, or a folder without a
            causal language model. A GGUF file that cannot be converted.
    """
    if config.model == SMOLLM2_ALIAS:
        return _from_gguf(gguf.smollm2_file(), config)
    path = Path(os.path.expanduser(config.model))
    if path.is_dir():
        return _from_folder(path, config)
    if path.is_file():
        return _from_file(path, config)
    if not _HUB_ID.fullmatch(config.model) or path.suffix in (*_PICKLED, ".gguf", ".safetensors"):
        raise ModelError(f"{config.model}: no such file or folder; give a path that exists or a hub id like owner/name")
    return _from_hub(config, config.revision, weights=False)


def fetch_weights(config: ModelConfig, source: ModelSource) -> Path:
    """Folder with the weights of a model that `resolve_source` found; downloads those of a hub model's same commit.

    Raises:
        ModelError: The hub is out of reach and the weights are not in its cache.
    """
    is_local = config.model == SMOLLM2_ALIAS or os.path.exists(os.path.expanduser(config.model))
    if is_local or config.gguf_file:
        return source.folder
    return _from_hub(config, source.revision, weights=True).folder


def _from_folder(folder: Path, config: ModelConfig) -> ModelSource:
    if config.gguf_file:
        return _from_gguf(folder / config.gguf_file, config)
    names = sorted(item.name for item in folder.iterdir())
    _refuse_unusable(str(folder), names)
    return ModelSource(folder.resolve(), folder_revision(folder))


def _from_file(path: Path, config: ModelConfig) -> ModelSource:
    if path.suffix == ".gguf":
        return _from_gguf(path, config)
    if path.suffix in _PICKLED:
        raise ModelError(f"{path}: {_pickled_message(path.name)}")
    raise ModelError(f"{path}: is not a GGUF file; give the folder that holds config.json and the weights")


def _from_gguf(path: Path, config: ModelConfig) -> ModelSource:
    if not path.is_file():
        raise ModelError(f"{path}: no such GGUF file; check model and gguf_file")
    converted = gguf.convert(path, trust_remote_code=config.trust_remote_code)
    return ModelSource(converted.folder, converted.revision)


def _refuse_unusable(where: str, names: list[str]) -> None:
    """Refuses a listing of files that is not a causal language model in safetensors."""
    if any(name.endswith(".safetensors") for name in names) and "config.json" in names:
        if "adapter_config.json" in names and not any(name.startswith("model") for name in names):
            raise ModelError(f"{where}: holds a LoRA adapter, not a model; merge it into its base model and save that")
        return
    pickled = [name for name in names if name.endswith(_PICKLED) and not name.startswith("training_args")]
    if pickled:
        raise ModelError(f"{where}: {_pickled_message(pickled[0])}")
    ggufs = [name for name in names if name.endswith(".gguf")]
    if ggufs:
        raise ModelError(f"{where}: holds GGUF files; name one in the config, for example gguf_file: {ggufs[0]}")
    absent = "config.json" if "config.json" not in names else "*.safetensors"
    raise ModelError(f"{where}: has no {absent}; give a folder that save_pretrained wrote")


def _pickled_message(name: str) -> str:
    return (
        f"{name} holds pickled weights, which can run code when they are read, and is refused; "
        "where you trust it, load it with transformers and save_pretrained it, which writes safetensors"
    )


def _from_hub(config: ModelConfig, revision: str | None, *, weights: bool) -> ModelSource:
    patterns = [config.gguf_file] if config.gguf_file else list(_PLAIN_FILES)
    if weights and not config.gguf_file:
        patterns.append("*.safetensors")
    offline = huggingface_hub.is_offline_mode()
    try:
        if not offline:
            listing = huggingface_hub.list_repo_files(config.model, revision=revision)
            _refuse_listing(config, listing)
        snapshot = huggingface_hub.snapshot_download(
            config.model, revision=revision, allow_patterns=patterns, local_files_only=offline
        )
    except LocalEntryNotFoundError as error:
        raise ModelError(_unreachable_message(config, offline=offline)) from error
    except (HfHubHTTPError, HFValidationError) as error:
        message = " ".join(str(error).split())[:300]
        raise ModelError(f"{config.model}: the hub refuses it ({message}); check the id, revision and token") from error
    except (OSError, _NoConnection) as error:
        raise ModelError(_unreachable_message(config, offline=offline)) from error
    folder = Path(snapshot)
    if config.gguf_file:
        return _from_gguf(folder / config.gguf_file, config)
    if offline:
        _refuse_listing(config, sorted(item.name for item in folder.iterdir()))
    return ModelSource(folder, folder.name)


def _refuse_listing(config: ModelConfig, names: list[str]) -> None:
    if not config.gguf_file:
        _refuse_unusable(config.model, names)


def _unreachable_message(config: ModelConfig, *, offline: bool) -> str:
    reason = "the hub is switched off (HF_HUB_OFFLINE)" if offline else "the hub cannot be reached"
    return (
        f"{config.model}: no such path here; as a hub id it is not in the local cache and {reason}. "
        "Give a path that exists, or fetch the model where there is a network"
    )
