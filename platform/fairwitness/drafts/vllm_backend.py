"""Continuations by vLLM, whose own prefix cache shares what branches have in common.

Not needed by anything else: vLLM moves torch and transformers to versions of its own, so it lives in a separate
environment (docs/guides/drafts.md). Its kernels round differently: its tokens can differ from the other backend's.
"""

from __future__ import annotations

from typing import Any

from fairwitness.drafts.engine import ContinueItem
from fairwitness.errors import ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import EOS, LENGTH, Continuation, Settings, before_stop


class VllmEngine:
    """Owns a vLLM engine."""

    def __init__(self, model: ModelConfig) -> None:
        """Loads the model.

        Raises:
            ModelError: vLLM is not installed, or cannot load the model.
        """
        try:
            import vllm
        except ImportError as error:
            raise ModelError("engine.backend: vllm is not installed here; see docs/guides/drafts.md") from error
        self._vllm: Any = vllm
        self._llm: Any = vllm.LLM(
            model=model.model,
            revision=model.revision,
            dtype=model.dtype,
            enable_prefix_caching=True,
            trust_remote_code=model.trust_remote_code,
        )

    def run(self, item: ContinueItem) -> list[list[Continuation]]:
        """Continues trees; vLLM batches all rows by itself."""
        prompts = [[*t.prefix[: b.at], *b.ids] for t in item.trees for b in t.branches]
        seeds = [b.seed for t in item.trees for b in t.branches]
        outputs = self._llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts],
            [self._parameters(item.settings, seed) for seed in seeds],
            use_tqdm=False,
        )
        found = iter([self._read(output.outputs[0], item.settings) for output in outputs])
        return [[next(found) for _ in tree.branches] for tree in item.trees]

    def close(self) -> None:
        """Frees the model."""
        self._llm = None

    def _parameters(self, settings: Settings, seed: int) -> Any:
        sampling = settings.sampling
        return self._vllm.SamplingParams(
            max_tokens=settings.max_new_tokens,
            stop=[text for texts in settings.stops.values() for text in texts],
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            seed=seed,
            skip_special_tokens=False,
        )

    def _read(self, output: Any, settings: Settings) -> Continuation:
        if output.finish_reason == "length":
            return Continuation(tuple(output.token_ids), LENGTH)
        name = next((n for n, texts in settings.stops.items() if output.stop_reason in texts), EOS)
        ids = before_stop(self._llm.get_tokenizer(), list(output.token_ids), settings.stops.get(name, ()))
        return Continuation(tuple(ids), name)
