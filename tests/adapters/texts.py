"""Small vocabularies and guides of every kind, and random texts of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trellm import Vocabulary
from trellm.guides import AlignedGuide, CFGGuide, ChoiceGuide, FreeGuide, GoalGuide, Guide, JSONGuide, RegexGuide, laws
from trellm.guides import SubstringGuide as Quotes

WORDS = [b"ab", b"the", b" the", b"12", b"123", b'"', b'":', b'", "', b"true", b"fal", b"se", "é".encode(), b" a"]
SMALL = Vocabulary([*(bytes([byte]) for byte in range(256)), *WORDS, b"<s>", None, None], [270, 271], [269])
PAIRS = [bytes([one, other]) for one in range(32, 127) for other in range(32, 127)]
WIDE = Vocabulary([*(bytes([byte]) for byte in range(256)), *PAIRS, None], [256 + len(PAIRS)])
"""So wide that its masks' words are listed where they are few."""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
}
UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}

MAKERS: dict[str, Callable[[Vocabulary], Guide]] = {
    "regex": lambda vocabulary: RegexGuide(r"(ab|the [0-9]{2,5};?)+é?", vocabulary),
    "choice": lambda vocabulary: ChoiceGuide(["true", "false", "the end", "12345"], vocabulary),
    "json": lambda vocabulary: JSONGuide(SCHEMA, vocabulary),
    "unique": lambda vocabulary: JSONGuide(UNIQUE, vocabulary),
    "grammar": lambda vocabulary: CFGGuide('start: "[" (start ("," start)*)? "]" | /[0-9]+/', vocabulary),
    "quotation": lambda vocabulary: Quotes("the cab is in the lab, and 123 the tab", vocabulary),
    "aligned": lambda vocabulary: AlignedGuide(RegexGuide("[0-9]{3}( the)*", vocabulary), b"see the"),
    "goals": lambda vocabulary: GoalGuide(RegexGuide("[a-c ]{0,9}", vocabulary), ["ab"]),
    "free": lambda vocabulary: FreeGuide(vocabulary),
}


def states_of(guide: Guide, seed: int = 0, texts: int = 4, tokens: int = 12) -> list[int]:
    """The states along random texts of a guide."""
    random = Random(seed)
    return [state for _ in range(texts) for state, _ in laws.walk(guide, random, tokens)]


def text_of(guide: Guide, seed: int, tokens: int = 12) -> list[int]:
    """The tokens of a random text, which need not be complete."""
    return [token for _, token in laws.walk(guide, Random(seed), tokens)][:-1]
