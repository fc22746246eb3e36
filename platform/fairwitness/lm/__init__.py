"""One loaded language model: its facts, tokens, scoring, generation, FF2 weights and their restoration."""
