"""What the engine of drafts is asked: trees of prefixes to continue, drafts to write and to answer from.

Two engines answer: the loaded model of every measure, and vLLM, whose own prefix cache shares what branches have in
common. vLLM moves torch and transformers to versions of its own, so it lives in a separate environment
(docs/guides/drafts.md). Its kernels round differently: its tokens can differ from the other engine's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from fairwitness.drafts.config import DraftEngineConfig
from fairwitness.drafts.steps import Ids
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import EngineSpec
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import (
    EOS,
    LENGTH,
    Branch,
    Continuation,
    Settings,
    Tree,
    before_stop,
    continue_trees,
    no_room,
)
from fairwitness.lm.engine import ModelEngine, ModelSpec
from fairwitness.lm.memory import within_memory


@dataclass(frozen=True)
class ContinueItem:
    """Trees to continue. Gives, per tree, one `Continuation` per branch."""

    trees: tuple[Tree, ...]
    settings: Settings

    def answer(self, engine: ModelEngine | VllmEngine) -> list[list[Continuation]]:
        """The continuations; where memory runs out, in batches of half the size.

        Raises:
            ModelError: Not even one row fits.
        """
        return _continued(engine, self.trees, self.settings)


class DraftRequest(NamedTuple):
    """One draft to write and to answer from.

    Attributes:
        prompt_ids: Ids up to where the draft begins.
        draft_ids: The draft, where it is given; None to have it written.
        draft_seed: Seed of the draft.
        answer_seed: Seed of the answer.
    """

    prompt_ids: Ids
    draft_ids: Ids | None
    draft_seed: int
    answer_seed: int


@dataclass(frozen=True)
class DraftItem:
    """Drafts to write, unless they are given, and the answers after them. Gives one `MadeDraft` per request.

    Attributes:
        requests: The drafts.
        closing: Ids between a draft and its answer.
        writing: How drafts are generated.
        answering: How answers are.
    """

    requests: tuple[DraftRequest, ...]
    closing: Ids
    writing: Settings
    answering: Settings

    def answer(self, engine: ModelEngine | VllmEngine) -> list[MadeDraft]:
        """The drafts and answers, in the order of the requests.

        Raises:
            ModelError: Not even one row fits.
        """
        own = [request for request in self.requests if request.draft_ids is None]
        trees = tuple(Tree((), (Branch(0, one.prompt_ids, one.draft_seed),)) for one in own)
        written = (
            dict(zip(own, (row[0] for row in _continued(engine, trees, self.writing)), strict=True)) if own else {}
        )
        drafts = [written[one].ids if one.draft_ids is None else one.draft_ids for one in self.requests]
        good = [n for n, ids in enumerate(drafts) if ids]
        again = tuple(self._answer_tree(self.requests[n], drafts[n]) for n in good)
        found = {n: row[0] for n, row in zip(good, _continued(engine, again, self.answering), strict=True)}
        return [MadeDraft(written.get(one), found.get(n)) for n, one in enumerate(self.requests)]

    def _answer_tree(self, request: DraftRequest, draft_ids: Ids) -> Tree:
        prefix = (*request.prompt_ids, *draft_ids)
        return Tree(prefix, (Branch(len(prefix), self.closing, request.answer_seed),))


class MadeDraft(NamedTuple):
    """What came of one request; `draft` is None for a given one, `answer` where there is no draft to answer from."""

    draft: Continuation | None
    answer: Continuation | None


def _continued(
    engine: ModelEngine | VllmEngine, trees: tuple[Tree, ...], settings: Settings
) -> list[list[Continuation]]:
    if isinstance(engine, VllmEngine):
        return engine.continue_trees(trees, settings)
    while (found := within_memory(partial(continue_trees, engine.lm, trees, settings))) is None:
        if settings.max_cache_tokens == 1:
            raise ModelError("out of memory with one draft; lower limits or take a smaller model")
        settings = replace(settings, max_cache_tokens=max(1, settings.max_cache_tokens // 2))
    return found


def engine_spec(model: ModelConfig, engine: DraftEngineConfig) -> EngineSpec:
    """Recipe of the engine that a configuration asks for."""
    return VllmSpec(model) if engine.backend == "vllm" else ModelSpec(model)


@dataclass(frozen=True)
class VllmSpec:
    """Recipe of a vLLM engine."""

    model: ModelConfig

    def build(self) -> VllmEngine:
        """Loads the model.

        Raises:
            ModelError: vLLM is not installed, or cannot load the model.
        """
        return VllmEngine(self.model)


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
        """The answer to one request."""
        return item.answer(self)

    def continue_trees(self, trees: tuple[Tree, ...], settings: Settings) -> list[list[Continuation]]:
        """Continues trees; vLLM batches all rows by itself."""
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
