"""Twelve insertions into a draft of 1,000 tokens: the shared prefix computed once against every row on its own.

    python benchmarks/prefix_reuse.py [--threads 1] [--new-tokens 24] [--keep]

Four insertions at each of three places of the draft (its end, its middle, its first sixth), on a random Llama of 31.5M
parameters in float32. Both sides run the same batches and generate the same tokens, which is checked.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import torch
from machine import Report, Stopwatch, load
from workloads import FIRST_ID, SHAPES, save_random_llama

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import Branch, Settings, Tree, continue_trees
from fairwitness.lm.model import load as load_model

PROMPT_TOKENS, DRAFT_TOKENS, INSERTION_TOKENS = 100, 1000, (30, 36, 42, 48)
PLACES = (DRAFT_TOKENS // 6, DRAFT_TOKENS // 2, DRAFT_TOKENS)
TARGET = 3.0
TURNS = 3


def main() -> int:
    """Runs both sides in turn and reports the ratio; 1 where it misses the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--keep", action="store_true", help="write results/prefix_reuse.txt")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    report = Report("prefix_reuse", is_kept=args.keep)
    shape = SHAPES["llama30m"]
    with tempfile.TemporaryDirectory() as folder:
        save_random_llama(Path(folder) / "model", shape, 0, context=2048)
        lm = load_model(ModelConfig(model=str(Path(folder) / "model")))
        tree = _tree(random.Random(0), shape.vocab)
        report.say(
            f"random Llama, {lm.facts.num_params / 1e6:.1f}M parameters; prompt {PROMPT_TOKENS}, draft {DRAFT_TOKENS} "
            f"tokens, {len(tree.branches)} insertions, {args.new_tokens} new tokens each, {args.threads} threads"
        )
        watches = {True: Stopwatch(), False: Stopwatch()}
        found = {}
        for turn in range(TURNS):
            for share, watch in watches.items():
                with watch:
                    settings = Settings(args.new_tokens, max_cache_tokens=32_768, share_prefix=share)
                    found[share] = continue_trees(lm, [tree], settings)
            report.say(f"turn {turn + 1} of {TURNS}: {load()}")
    shared, alone = watches[True], watches[False]
    rows = [
        ["wall s", *(f"{w.wall_s / TURNS:.2f}" for w in (shared, alone)), f"{alone.wall_s / shared.wall_s:.1f}"],
        ["CPU s", *(f"{w.cpu_s / TURNS:.2f}" for w in (shared, alone)), f"{alone.cpu_s / shared.cpu_s:.1f}"],
    ]
    report.table(["12 insertions", "shared", "not shared", "ratio"], rows)
    ratio, same = alone.wall_s / shared.wall_s, found[True] == found[False]
    report.say(f"the same tokens: {same}; target {TARGET:g}x: {'met' if ratio >= TARGET else 'MISSED'}")
    report.close()
    return 0 if same and ratio >= TARGET else 1


def _tree(draw: random.Random, vocab: int) -> Tree:
    prefix = _ids(draw, vocab, PROMPT_TOKENS + DRAFT_TOKENS)
    branches = [
        Branch(PROMPT_TOKENS + place, _ids(draw, vocab, length)) for place in PLACES for length in INSERTION_TOKENS
    ]
    return Tree(prefix, tuple(branches))


def _ids(draw: random.Random, vocab: int, length: int) -> tuple[int, ...]:
    return tuple(draw.randrange(FIRST_ID, vocab) for _ in range(length))


if __name__ == "__main__":
    sys.exit(main())
