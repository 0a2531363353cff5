"""Saved guides and tokenizers' files with random changes to their bytes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from .mutation import changed_value, value


def damaged(random: Random) -> tuple[str, Callable[[], Any], str]:
    """What kind of file it is, what loads it (and returns a guide), and how it was changed."""
    return _saved_guide(random) if random.random() < 0.6 else _tokenizer(random)


@cache
def _guide_file() -> bytes:
    from trellm import Vocabulary
    from trellm.guides import RegexGuide

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guide.safetensors"
        RegexGuide("[a-c]{1,3}x|é", Vocabulary.from_bytes()).save(path)
        return path.read_bytes()


def _saved_guide(random: Random) -> tuple[str, Callable[[], Any], str]:
    from trellm import Vocabulary
    from trellm.guides import RegexGuide

    data = bytearray(_guide_file())
    header = 8 + int.from_bytes(data[:8], "little")
    changes: list[str] = []
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        if not data:
            break
        at = random.randrange(min(len(data), header) if random.random() < 0.7 else len(data))
        draw = random.random()
        if draw < 0.6:
            data[at] = random.randrange(256) if random.random() < 0.5 else random.choice(b'0123456789",:{}[]')
        elif draw < 0.7:
            del data[at:]
        elif draw < 0.8:
            del data[at : at + random.randint(1, 9)]
        elif draw < 0.9:
            data[at:at] = random.randbytes(random.randint(1, 9))
        else:
            data[0:8] = random.choice([0, 1, header, 2**31, 2**63 - 1, 2**64 - 1]).to_bytes(8, "little")
        changes.append(f"{at}:{draw:.2f}")

    def load() -> Any:
        handle, name = tempfile.mkstemp(suffix=".safetensors")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            return RegexGuide.load(name, Vocabulary.from_bytes())
        finally:
            os.unlink(name)

    return "saved guide", load, f"{changes}: {bytes(data[:header])!r}"


@cache
def _tokenizer_json() -> Any:
    """A small BPE tokenizer over bytes, as JSON."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["the cat sat on the mat", "été 漢字"] * 5, trainer)
    return json.loads(tokenizer.to_str())


def _tokenizer(random: Random) -> tuple[str, Callable[[], Any], str]:
    from tokenizers import Tokenizer
    from trellm import Vocabulary
    from trellm.guides import RegexGuide

    changed = changed_value(random, _tokenizer_json(), [_tokenizer_json()], lambda random: value(random, 1))

    def load() -> Any:
        try:
            tokenizer = Tokenizer.from_str(json.dumps(changed))
        except BaseException:  # the library's own panic, which is no Exception, is not ours
            return None
        eos = tokenizer.token_to_id("<eos>")
        vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=[0 if eos is None else eos])
        return RegexGuide("[a-e ]{1,9}", vocabulary)

    return "tokenizer.json", load, json.dumps(changed)[:300]
