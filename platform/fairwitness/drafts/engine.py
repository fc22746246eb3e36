"""Continuations by vLLM, whose own prefix cache shares what branches have in common.

Not needed by anything else: vLLM moves torch and transformers to versions of its own, so it lives in a separate
environment (docs/guides/drafts.md). Its kernels round differently: its tokens can differ from the other backend's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from fairwitness.drafts.config import DraftEngineConfig
from fairwitness.drafts.steps import Ids
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import Engine
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
from fairwitness.lm.memory import free_memory, keep_freed_memory, within_memory
from fairwitness.lm.model import LanguageModel, load


@dataclass(frozen=True)
class ContinueItem:
    """Trees to continue. Gives, per tree, one `Continuation` per branch."""

    trees: tuple[Tree, ...]
    settings: Settings


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


class MadeDraft(NamedTuple):
    """What came of one request; `draft` is None for a given one, `answer` where there is no draft to answer from."""

    draft: Continuation | None
    answer: Continuation | None


Continue = Callable[[tuple[Tree, ...], Settings], list[list[Continuation]]]


def run_item(item: ContinueItem | DraftItem, continue_: Continue) -> Any:
    """Answers a request of either kind with a backend's way to continue trees."""
    if isinstance(item, ContinueItem):
        return continue_(item.trees, item.settings)
    own = [request for request in item.requests if request.draft_ids is None]
    trees = tuple(Tree((), (Branch(0, one.prompt_ids, one.draft_seed),)) for one in own)
    written = dict(zip(own, (row[0] for row in continue_(trees, item.writing)), strict=True)) if own else {}
    drafts = [written[one].ids if one.draft_ids is None else one.draft_ids for one in item.requests]
    good = [n for n, ids in enumerate(drafts) if ids]
    answers = continue_(tuple(_answer_tree(item, item.requests[n], drafts[n]) for n in good), item.answering)
    found = {n: row[0] for n, row in zip(good, answers, strict=True)}
    return [MadeDraft(written.get(one), found.get(n)) for n, one in enumerate(item.requests)]


def _answer_tree(item: DraftItem, request: DraftRequest, draft_ids: Ids) -> Tree:
    prefix = (*request.prompt_ids, *draft_ids)
    return Tree(prefix, (Branch(len(prefix), item.closing, request.answer_seed),))


@dataclass(frozen=True)
class DraftSpec:
    """Recipe of an engine of drafts: which model, and how it may use its device."""

    model: ModelConfig
    engine: DraftEngineConfig

    def build(self) -> Engine:
        """Loads the model.

        Raises:
            ModelError: It cannot be used as it is, or the backend is not installed.
        """
        if self.engine.backend == "vllm":
            pass

            return VllmEngine(self.model)
        if self.model.device == "cpu":
            keep_freed_memory()
        return DraftEngine(load(self.model))


class DraftEngine:
    """Owns one loaded model."""

    def __init__(self, lm: LanguageModel) -> None:
        """Takes a loaded model."""
        self.lm: LanguageModel | None = lm

    def run(self, item: ContinueItem | DraftItem) -> Any:
        """Does what is asked, see the items; where memory runs out, in batches of half the size.

        Raises:
            ModelError: Not even one row fits.
        """
        return run_item(item, self._continue)

    def _continue(self, trees: tuple[Tree, ...], settings: Settings) -> list[list[Continuation]]:
        if self.lm is None:
            raise RuntimeError("the engine is closed")
        while (found := within_memory(partial(continue_trees, self.lm, trees, settings))) is None:
            if settings.max_cache_tokens == 1:
                raise ModelError("out of memory with one draft; lower limits or take a smaller model")
            settings = replace(settings, max_cache_tokens=max(1, settings.max_cache_tokens // 2))
        return found

    def close(self) -> None:
        """Frees the model."""
        self.lm = None
        free_memory()


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
