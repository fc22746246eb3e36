"""What the pool on Ray with one actor adds to the wall time of the pool without Ray, for continuations of drafts.

Run: `PYTHONPATH=platform:schemas python benchmarks/draft_ray_overhead.py [--drafts 100] [--threads N]`. A random Llama
goes on after twelve insertions into each draft, four at each of three places; an item holds as many drafts as in a
run. Both pools continue the same items in turns, see `pools.compare`. Target: at most 5% more wall time.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import Report
from pools import compare
from workloads import FIRST_ID, SHAPES, save_random_llama

from fairwitness.drafts.config import DraftEngineConfig
from fairwitness.drafts.engine import ContinueItem
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import Branch, Settings, Tree
from fairwitness.lm.engine import ModelSpec

PROMPT_TOKENS, DRAFT_TOKENS, INSERTION_TOKENS = 60, (200, 400), (30, 36, 42, 48)


def main() -> int:
    """Prints a line per turn and the table; returns 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafts", type=int, default=100)
    parser.add_argument("--drafts-per-item", type=int, default=DraftEngineConfig().drafts_per_item)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--model", choices=sorted(SHAPES), default="organism", help="shape of the random model")
    parser.add_argument("--turns", type=int, default=13, help="parts that the items are cut into")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trial", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    report = Report("draft_ray_overhead", is_kept=not args.trial)
    shape, draw = SHAPES[args.model], random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        save_random_llama(Path(folder) / "model", shape, 0)
        trees = [_tree(draw, shape.vocab) for _ in range(args.drafts)]
        report.say(
            f"random Llama of {args.model}'s shape ({shape.layers} layers of {shape.hidden}); {args.drafts} drafts of "
            f"{DRAFT_TOKENS[0]} to {DRAFT_TOKENS[1]} tokens, {sum(len(t.branches) for t in trees)} continuations of "
            f"{args.new_tokens} tokens, {args.drafts_per_item} drafts an item, {args.threads} threads"
        )
        settings = Settings(args.new_tokens)
        size = args.drafts_per_item
        items = [ContinueItem(tuple(trees[n : n + size]), settings) for n in range(0, len(trees), size)]
        spec = ModelSpec(ModelConfig(model=str(Path(folder) / "model")))
        first = ContinueItem(tuple(trees[:1]), settings)
        good = compare(spec, first, items, report, turns=args.turns, threads=args.threads, read=_texts)
    report.close()
    return int(not good)


def _texts(value: Any) -> list[list[tuple[Any, ...]]]:
    return [[(one.ids, one.finish, one.error) for one in tree] for tree in value]


def _tree(draw: random.Random, vocab: int) -> Tree:
    length = draw.randint(*DRAFT_TOKENS)
    places = (length // 6, length // 2, length)
    branches = [
        Branch(PROMPT_TOKENS + place, _ids(draw, vocab, num), seed=draw.randrange(2**32))
        for place in places
        for num in INSERTION_TOKENS
    ]
    return Tree(_ids(draw, vocab, PROMPT_TOKENS + length), tuple(branches))


def _ids(draw: random.Random, vocab: int, length: int) -> tuple[int, ...]:
    return tuple(draw.randrange(FIRST_ID, vocab) for _ in range(length))


if __name__ == "__main__":
    sys.exit(main())
