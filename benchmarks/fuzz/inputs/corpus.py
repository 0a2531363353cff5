"""What cases are made from: known patterns, schemas, grammars and vocabularies."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from .grammars import GBNF_KNOWN, LARK_KNOWN
from .regexes import KNOWN
from .schemas import patterns_of

ROOT = Path(__file__).resolve().parents[3]
SMALL = 20_000
"""How many characters a known schema may have, so that most cases are quick."""


@dataclass
class Corpus:
    """Lists that never change, so that a case's number says what it is."""

    schemas: list[Any] = field(default_factory=list)
    patterns: list[str] = field(default_factory=lambda: list(KNOWN))
    lark: list[str] = field(default_factory=lambda: list(LARK_KNOWN))
    gbnf: list[str] = field(default_factory=lambda: list(GBNF_KNOWN))

    @classmethod
    def read(cls, schemas: str = "", suite: str = "") -> Corpus:
        """schemas: a file with one {"schema": ...} a line; suite: the folder of the JSON Schema Test Suite."""
        found: list[Any] = []
        if suite:
            for path in sorted(Path(suite).glob("tests/draft*/**/*.json")):
                found += [group["schema"] for group in json.loads(path.read_text(encoding="utf-8"))]
        if schemas:
            with gzip.open(schemas, "rt", encoding="utf-8") as lines:
                found += [json.loads(line)["schema"] for line in lines if len(line) < SMALL]
        corpus = cls(found)
        corpus.patterns += sorted(patterns_of(found))
        corpus.lark += [
            path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "grammars").glob("*.lark"))
        ]
        return corpus


def vocabularies(name: str) -> list[Any]:
    """The vocabularies that cases draw from: "bytes", "odd", or the one of a tokenizer.json."""
    from trellm import Vocabulary

    if name == "bytes":
        return [Vocabulary.from_bytes()]
    if name == "odd":
        return _odd()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(name)
    eos = [token.content for token in tokenizer.get_added_tokens_decoder().values() if "end" in token.content]
    ids = [tokenizer.token_to_id(text) for text in eos] or [tokenizer.get_vocab_size() - 1]
    return [Vocabulary.from_tokenizer(tokenizer, eos_ids=ids)]


def _odd() -> list[Any]:
    """Vocabularies that lack bytes, repeat tokens, have long ones, and sizes around the width of a word."""
    from trellm import Vocabulary

    random = Random(0)
    every = [bytes([byte]) for byte in range(256)]
    texts = [random.randbytes(random.randint(1, 5)) for _ in range(200)]
    words = [
        random.choice(["ab", "a", "true", '"', '{"', "é", "漢字", " ", "null", "0", "12", "-1", "x" * 300])
        for _ in range(90)
    ]
    return [
        Vocabulary([*every, *every, *texts, None, None], [len(every) * 2 + 200, 256 * 2 + 201]),
        Vocabulary([*(text.encode() for text in words), *every[32:127], None], [len(words) + 95]),
        Vocabulary.from_characters([chr(code) for code in range(32, 127)]),
        Vocabulary([b"a", b"b", b"ab", None], [3]),
        Vocabulary([None, *every[97:123], *every[48:52], None][:32], [0]),
        Vocabulary([*every[:255], b"aa" * 200, None, b"{}", b'":"'], [256]),
        Vocabulary([None], [0]),
    ]
