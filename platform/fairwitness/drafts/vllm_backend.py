"""Continuations by vLLM, whose own prefix cache shares what branches have in common.

Not needed by anything else: vLLM moves torch and transformers to versions of its own, so it lives in a separate
environment (docs/guides/drafts.md). Its kernels round differently: its tokens can differ from the other backend's.
"""

from __future__ import annotations

from typing import Any

from fairwitness.drafts.engine import ContinueItem, DraftItem, run_item
from fairwitness.errors import ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import EOS, LENGTH, Continuation, Settings, Tree, before_stop, no_room


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

    def run(self, item: ContinueItem | DraftItem) -> Any:
        """Does what is asked, see the items; vLLM batches all rows by itself."""
        return run_item(item, self._continue)

    def _continue(self, trees: tuple[Tree, ...], settings: Settings) -> list[list[Continuation]]:
        rows = [([*t.prefix[: b.at], *b.ids], b.seed) for t in trees for b in t.branches]
        context = self._llm.llm_engine.model_config.max_model_len
        fitting = [(ids, seed) for ids, seed in rows if 0 < len(ids) < context]
        outputs = self._llm.generate(
            [{"prompt_token_ids": ids} for ids, _ in fitting],
            [self._parameters(settings, seed) for _, seed in fitting],
            use_tqdm=False,
        )
        made = iter([self._read(output.outputs[0], settings) for output in outputs])
        found = (next(made) if 0 < len(ids) < context else no_room(len(ids), context) for ids, _ in rows)
        return [[next(found) for _ in tree.branches] for tree in trees]

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
