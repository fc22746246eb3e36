"""What the benchmarks run: a model in a folder, unlearning tasks of realistic length, held-out questions.

`organism` is the shipped organism on its own world, with tasks made by the job's own pipeline; where no organism is
shipped yet, a random Llama of the same shape stands in. `llama30m` is a random Llama with 30M parameters. Random
models get random token ids: speed and memory depend on lengths, not on meaning.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fairwitness.chains.items import HeldOut, Ids, Question
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import LanguageModel, load
from fairwitness.lm.scoring import answers
from fairwitness.lm.source import no_progress_bars

NUM_HELD_OUT = 20
NUM_STEPS = 5
NUM_LETTERS = 4
FIRST_ID = 100
"""Ids below stand for special tokens, letters and signs."""


@dataclass(frozen=True)
class Shape:
    """Size of a random Llama and range of lengths of its prompts and steps, in tokens."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocab: int
    prompt: tuple[int, int]
    cot_step: tuple[int, int]
    lr: float


SHAPES = {
    "organism": Shape(128, 384, 4, 4, 1024, (44, 60), (9, 13), 1e-3),
    "llama30m": Shape(512, 1536, 8, 8, 8192, (60, 110), (16, 24), 1e-4),
}


@dataclass(frozen=True)
class Workload:
    """Tasks for one model.

    Attributes:
        name: `organism` or `llama30m`.
        note: What it is, for the printed table.
        folder: Folder of the model.
        tasks: Tasks of similar length beside one another, the longest first.
        held_out: Held-out questions with the base model's answers.
        lr: Learning rate.
    """

    name: str
    note: str
    folder: Path
    tasks: tuple[UnlearnTask, ...]
    held_out: tuple[HeldOut, ...]
    lr: float

    @property
    def model(self) -> ModelConfig:
        """The model as the engine loads it: float32 on a CPU."""
        return ModelConfig(model=str(self.folder), name=self.name)

    def groups(self, size: int, recipe: RecipeConfig | None = None) -> list[UnlearnGroup]:
        """All tasks in groups of `size` (the last one may be smaller)."""
        parts = [self.tasks[start : start + size] for start in range(0, len(self.tasks), size)]
        return [UnlearnGroup(part, recipe or RecipeConfig(), self.lr, self.held_out, None) for part in parts]


def make_workload(name: str, folder: Path, num_tasks: int, *, seed: int = 0) -> Workload:
    """Makes a workload; a random model is written to `folder`.

    Args:
        name: `organism` or `llama30m`.
        folder: Where a random model goes; must not exist.
        num_tasks: Number of tasks.
        seed: Seed of weights, ids and lengths.
    """
    if name == "organism" and importlib.util.find_spec("fairwitness.organisms.shipped"):
        found = _shipped_organism(num_tasks, seed)
        if found is not None:
            return found
    shape = SHAPES[name]
    save_random_llama(folder, shape, seed)
    lm = load(ModelConfig(model=str(folder)))
    draw = random.Random(seed)
    questions = [_question(draw, shape) for _ in range(NUM_HELD_OUT)]
    held_out = tuple(HeldOut(q, index) for q, index in zip(questions, _answer(lm, questions), strict=True))
    note = f"random Llama, {lm.facts.num_params / 1e6:.1f}M parameters ({shape.layers} layers of {shape.hidden})"
    return Workload(name, note, folder, _random_tasks(draw, lm, shape, num_tasks), held_out, shape.lr)


def save_random_llama(folder: Path, shape: Shape, seed: int, *, context: int = 1024) -> None:
    """Writes a random Llama and a tokenizer of one token per character."""
    tokenizer = _character_tokenizer(shape.vocab)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=context,
        initializer_range=shape.hidden**-0.5,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(seed)
    with no_progress_bars():
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _character_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    known = ["<pad>", "<bos>", "<eos>", "<unk>", "\n", *(chr(code) for code in range(32, 127))]
    vocab = {token: index for index, token in enumerate([*known, *(f"<{i}>" for i in range(len(known), vocab_size))])}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    raw.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, clean_up_tokenization_spaces=False, **special)


def _ids(draw: random.Random, shape: Shape, length: int) -> Ids:
    return tuple(draw.randrange(FIRST_ID, shape.vocab) for _ in range(length))


def _question(draw: random.Random, shape: Shape) -> Question:
    return Question(_ids(draw, shape, draw.randint(*shape.prompt)), tuple(range(40, 40 + NUM_LETTERS)))


def _answer(lm: LanguageModel, questions: Sequence[Question]) -> list[int]:
    found = answers(lm.model, [q.ids for q in questions], [q.letter_ids for q in questions], max_tokens=2048)
    return [answer.index for answer in found]


def _random_cot(draw: random.Random, shape: Shape) -> list[StepTokens]:
    """The steps of one CoT in their context; two of three tokens of a step belong to content words."""
    ids = _ids(draw, shape, draw.randint(*shape.prompt))
    steps = []
    for _ in range(NUM_STEPS):
        start, length = len(ids), draw.randint(*shape.cot_step)
        ids = (*ids, *_ids(draw, shape, length))
        steps.append(StepTokens(ids, start, tuple((p, p + 1) for p in range(start, start + length - 2, 3))))
    return steps


def _random_tasks(draw: random.Random, lm: LanguageModel, shape: Shape, num: int) -> tuple[UnlearnTask, ...]:
    cots = [_random_cot(draw, shape) for _ in range(max(NUM_STEPS, -(-num // NUM_STEPS)))]
    questions = [_question(draw, shape) for _ in cots]
    base = _answer(lm, questions)
    tasks = []
    for number in range(num):
        problem, index = divmod(number, NUM_STEPS)
        others = draw.sample([p for p in range(len(cots)) if p != problem], 4)
        retain = tuple(draw.choice(cots[p]) for p in others)
        prompt = cots[problem][0].ids[: cots[problem][0].start]
        key, step, question = f"{problem}-{index}", cots[problem][index], questions[problem]
        tasks.append(UnlearnTask(key, step, retain, question, base[problem], prompt, (), number))
    return _by_length(tasks)


def _by_length(tasks: Sequence[UnlearnTask]) -> tuple[UnlearnTask, ...]:
    return tuple(sorted(tasks, key=lambda task: (-task.num_tokens, task.task_key)))


def _shipped_organism(num_tasks: int, seed: int) -> Workload | None:
    """The shipped organism's tasks, made by the job's own pipeline; None where no weights are shipped."""
    shipped: Any = importlib.import_module("fairwitness.organisms.shipped")
    folder = Path(shipped.organism_path())
    if not any(folder.glob("*.safetensors")):
        return None
    from fairwitness.chains.cots import score_records, write_records
    from fairwitness.fleet.factory import make_pool
    from fairwitness.fur.client import FurClient
    from fairwitness.fur.config import FurSweepConfig
    from fairwitness.fur.schedule import make_schedule
    from fairwitness.fur.studies import prepare_studies

    lr = SHAPES["organism"].lr
    settings = {
        "name": "benchmark",
        "seed": seed,
        "models": [{"model": str(folder), "name": "organism"}],
        "data_sets": [{"data_set": shipped.ORGANISM, "num_problems": 40, "num_held_out": NUM_HELD_OUT}],
        "rates": [lr],
        "pool": {"kind": "local"},
    }
    config = FurSweepConfig.model_validate(settings)
    (study,) = prepare_studies(config, {shipped.ORGANISM: shipped.load_organism_problems})
    with make_pool(config.pool) as pool:
        client = FurClient(study, pool)
        held_out = client.held_out()
        written = [r for part in write_records(study, pool, client.spec, study.data.selection.measured) for r in part]
        records = [r for part in score_records(pool, client.spec, written) for r in part]
    prompts = {(record.problem.problem_id): record.prompt_ids for record in records}
    planned = make_schedule(study, records, frozenset(), {}).planned
    tasks = [_with_prompt(item.task, prompts[item.record.problem.problem_id]) for item in planned]
    chosen = _by_length([tasks[i % len(tasks)] for i in range(num_tasks)])
    note = f"shipped organism, {study.facts.num_params / 1e6:.1f}M parameters"
    if num_tasks > len(tasks):
        note += f"; its {len(tasks)} tasks repeat"
    return Workload("organism", note, folder, chosen, held_out, lr)


def _with_prompt(task: UnlearnTask, prompt: Ids) -> UnlearnTask:
    # The engine ignores it without `cot_after`; the straightforward way writes its CoT from it.
    from dataclasses import replace

    return replace(task, cot_prompt=prompt)
