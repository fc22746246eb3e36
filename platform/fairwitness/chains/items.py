"""What a base model is asked: questions, chains of thought, probabilities of steps. Immutable, picklable, ids only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairwitness.chains.config import CotConfig
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import LetterAnswer, TargetTokens, answers, sequence_logprobs

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A prompt that ends in the answer cue, with the ids of its letters in that context."""

    ids: Ids
    letter_ids: Ids


@dataclass(frozen=True)
class HeldOut:
    """A held-out question and the choice (0 for A) that the base model picks."""

    question: Question
    base_index: int


@dataclass(frozen=True)
class AnswerItem:
    """Questions to answer directly. Gives one `LetterAnswer` per question."""

    questions: tuple[Question, ...]

    def answer(self, engine: ModelEngine) -> list[LetterAnswer]:
        """The model's answer to each question, without a CoT."""
        prompts, letters = [q.ids for q in self.questions], [q.letter_ids for q in self.questions]
        return answers(engine.lm.model, prompts, letters, max_tokens=engine.config.max_tokens)


@dataclass(frozen=True)
class CotRequest:
    """One CoT to generate and to answer from.

    Attributes:
        prompt: Prompt of the CoT, and what of the CoT is given.
        suffix: What follows the CoT up to the answer cue.
        letter_ids: Ids of the letters after that cue.
        num_begun: How many of the prompt's last ids are the given beginning of the CoT.
    """

    prompt: Ids
    suffix: Ids
    letter_ids: Ids
    num_begun: int = 0


@dataclass(frozen=True)
class CotItem:
    """CoTs to generate greedily. Gives one `CotOutcome` per request."""

    requests: tuple[CotRequest, ...]
    cot: CotConfig

    def answer(self, engine: ModelEngine) -> list[CotOutcome]:
        """The CoTs and the answers given them, batched; a request that fails does not stop the others.

        Source: FUR §5 (two-step prompting), App. D.
        """
        lm, requests = engine.lm, self.requests
        generated = generate_greedy(
            lm,
            [list(r.prompt) for r in requests],
            self.cot.max_new_tokens,
            batch_size=len(requests),
            num_begun=[r.num_begun for r in requests],
        )
        outcomes = [
            _outcome(lm, request, tuple(g.ids), g.finish, g.error)
            for request, g in zip(requests, generated, strict=True)
        ]
        good = [i for i, outcome in enumerate(outcomes) if outcome.error is None]
        prompts = [(*requests[i].prompt, *outcomes[i].ids, *requests[i].suffix) for i in good]
        letters = [requests[i].letter_ids for i in good]
        found = answers(lm.model, prompts, letters, max_tokens=engine.config.max_tokens)
        for i, answer in zip(good, found, strict=True):
            outcomes[i] = replace(outcomes[i], answer=answer)
        return outcomes


@dataclass(frozen=True)
class CotOutcome:
    """A CoT and the answer given it.

    Attributes:
        ids: Generated ids, without the blank line or end-of-text token; the given beginning of a CoT is not among them.
        finish: `blank_line`, `eos` or `length`; None where nothing was generated.
        answer: None where there is an error.
        error: Why there is no CoT or no answer.
    """

    ids: Ids
    finish: str | None
    answer: LetterAnswer | None
    error: str | None


@dataclass(frozen=True)
class StepScoreItem:
    """CoTs whose steps are scored under the base model. Gives, per CoT, the mean log-probability of each step."""

    cots: tuple[CotSteps, ...]

    def answer(self, engine: ModelEngine) -> list[list[float]]:
        """Mean log-probability (nats per token) of each step of each CoT, given everything before it.

        Source: FUR, Eq. 1, length-normalised as exp(mean log p).
        """
        targets = [TargetTokens(cot.ids, [p for a, b in cot.steps for p in range(a, b)]) for cot in self.cots]
        found = sequence_logprobs(engine.lm.model, targets, max_tokens=engine.config.max_tokens)
        return [
            [float(part.mean()) for part in logprobs.split([b - a for a, b in cot.steps])]
            for cot, logprobs in zip(self.cots, found, strict=True)
        ]


@dataclass(frozen=True)
class CotSteps:
    """Prompt and CoT ids, and the half-open ranges of its steps."""

    ids: Ids
    steps: tuple[tuple[int, int], ...]


def _outcome(
    lm: LanguageModel, request: CotRequest, ids: tuple[int, ...], finish: str | None, error: str | None
) -> CotOutcome:
    length = len(request.prompt) + len(ids) + len(request.suffix)
    if error is None and not ids and not request.num_begun:
        error = "the CoT is empty: the model ended it at once"
    if error is None and length > lm.facts.context_length:
        error = (
            f"prompt, CoT and question have {length} tokens, the model's context holds {lm.facts.context_length}; "
            "lower cot.max_new_tokens"
        )
    return CotOutcome(ids, finish, None, error)
