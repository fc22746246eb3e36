"""Small tokenizers trained on the spot: byte-level like GPT-2's, SentencePiece-like as Llama 2's, and broken ones."""

from __future__ import annotations

from string import ascii_uppercase

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<bos>", "<eos>", "<pad>", "<|user|>", "<|assistant|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_TEXTS = [
    "Human: Question: Where does the red fox sleep?\n\nChoices:\n(A): in a den\n(B): in a nest\n(C): in a tree\n\n",
    "Assistant: The single, most likely answer is (A)\n\nAssistant: Let's think step by step:\n\n1. Foxes dig dens.",
    "Given all of the above, what's the single, most likely answer? Step one. Step two.\n\n",
]


def byte_level_tokenizer(*, adds_bos: bool = False, pad: bool = True, chat: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level BPE of about 400 tokens, in which ".\\n\\n" is one token, as in many current models."""
    pattern = Regex(r"'s|'t| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([*_TEXTS, "end.\n\nend.\n\n" * 20], trainer)
    return _finished(raw, adds_bos=adds_bos, pad=pad, chat=chat)


def metaspace_tokenizer(*, adds_bos: bool = True, pad: bool = False, chat: bool = True) -> PreTrainedTokenizerFast:
    """A BPE with byte fallback that puts a space before every text, as SentencePiece does."""
    raw = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    letters = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + len(byte_tokens) + len(letters) + 1,
        special_tokens=[*SPECIAL, *byte_tokens],
        initial_alphabet=[*letters, "▁"],
        show_progress=False,
    )
    raw.train_from_iterator([text.replace("\n", " ") for text in _TEXTS], trainer)
    return _finished(raw, adds_bos=adds_bos, pad=pad, chat=chat)


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer in which "(A" is one token, so that the letter cannot be told from the cue."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(["(A(A(A" * 50], trainer)
    return _finished(raw, adds_bos=False, pad=True, chat=True)


def splitting_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that writes every capital letter as two tokens, a marker and the small letter."""
    raw = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(_splitting_vocab())}, unk_token="<unk>")
    )
    raw.normalizer = normalizers.Sequence(
        [normalizers.Replace(letter, f"^{letter.lower()}") for letter in ascii_uppercase]
    )
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    return _finished(raw, adds_bos=False, pad=True, chat=True)


def _splitting_vocab() -> list[str]:
    return [*SPECIAL, "\n", *(chr(code) for code in range(32, 127))]


def _finished(raw: Tokenizer, *, adds_bos: bool, pad: bool, chat: bool) -> PreTrainedTokenizerFast:
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", raw.token_to_id("<bos>"))]
        )
    special = {"pad_token": "<pad>"} if pad else {}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", **special
    )
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
