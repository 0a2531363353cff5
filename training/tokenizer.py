"""The tokenizer: byte-level BPE that is trained on the generated text, with the chat's marks as special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from .text.documents import CHAT_TEMPLATE, END, START, STOP, THINK, THOUGHT, drawn

# A space belongs to the word in small letters or to the mark behind it, as usual; but a name begins without it and a
# digit is a token of its own, so that names and numbers are the same tokens wherever they stand, and can be copied.
SPLIT = r" ?\p{Ll}+|\p{Lu}\p{Ll}+|\p{Lu}|\p{N}|[\p{L}\p{M}]| ?[^\s\p{L}\p{N}]+|\n+|\s"


def train(size: int, seed: int, documents: int) -> Any:
    """A tokenizer of `size` tokens from that many documents."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 2,
        special_tokens=[END, START, STOP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, documents), trainer)
    tokenizer.add_tokens([THINK, THOUGHT])
    return tokenizer


def save(tokenizer: Any, folder: Path, context: int) -> None:
    """Write it as a tokenizer of transformers, with its chat template."""
    from transformers import PreTrainedTokenizerFast

    wrapper: Any = PreTrainedTokenizerFast
    wrapper(
        tokenizer_object=tokenizer,
        eos_token=STOP,
        pad_token=END,
        additional_special_tokens=[START, STOP, END],
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(str(folder))


def _texts(seed: int, documents: int) -> Iterator[str]:
    """Documents of the training side, without the marks."""
    random = Random(f"tokenizer {seed}")
    for _ in range(documents):
        text = "".join(text for text, _ in drawn(random, False))
        for mark in (END, START, STOP, THINK, THOUGHT):
            text = text.replace(mark, "\n")
        yield text
