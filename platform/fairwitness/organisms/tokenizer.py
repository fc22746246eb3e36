"""The organism's tokenizer: byte-level BPE in which every word of the world is one token."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_uppercase

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_PHRASES = (
    "Human: Question:",
    "\n\nChoices:",
    "\n\nAssistant: The single, most likely answer is",
    "\n\nAssistant: Let's think step by step:",
    "\n\nHuman: Given all of the above, what's the single, most likely answer?",
)
_WORDS = r"[ \n]?\(| ?[A-Za-z]+|\n+| ?[0-9]| ?[^\sA-Za-z0-9(]+|\s+"
_PIECES = Regex("|".join([*(re.escape(phrase) for phrase in _PHRASES), _WORDS]))
_MAX_VOCAB = 8192


def train_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """Trains the tokenizer until each word in `texts` is one token.

    An opening bracket is always a token of its own (with the space before it), so a letter after "(" is too; digits are
    single; any other text falls back to bytes. A BOS comes before a text unless special tokens are
    turned off.

    Args:
        texts: All wordings that the model will see.
        max_length: Longest context of the model, in tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCAB,
        min_frequency=1,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, " ".join(f"({letter}):" for letter in ascii_uppercase)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
