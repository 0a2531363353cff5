"""Random changes to texts and to JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LETTERS = "abcxyzAZ019 _-.,:;'\"/\\é漢😀\n\t"
ODD = [
    "\x00",
    "\x7f",
    "\x85",
    "\u2028",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "\ud800",
    "\udfff",
    "\U0010ffff",
    "\r\n",
    "ſ",
    "K",
    "İ",
]


def character(random: Random) -> str:
    """A character, sometimes one that few programs expect."""
    if random.random() < 0.9:
        return random.choice(LETTERS)
    return random.choice(ODD) if random.random() < 0.7 else chr(random.randrange(0x110000))


def word(random: Random, most: int = 6) -> str:
    """A few characters, or none."""
    return "".join(character(random) for _ in range(random.randint(0, most)))


def size(random: Random) -> int:
    """A number that is mostly small, sometimes at the edge of a width, sometimes huge."""
    draw = random.random()
    if draw < 0.8:
        return random.randint(0, 6)
    if draw < 0.95:
        return random.choice([7, 31, 32, 63, 64, 127, 255, 256, 257, 1000, 4095, 65_535, 65_536])
    return random.choice([10**6, 2**31 - 1, 2**31, 2**32, 2**63, 10**19, 10**40])


def changed_text(random: Random, text: str, others: Sequence[str], pieces: Sequence[str]) -> str:
    """A text after some random edits; `pieces` are what is worth inserting, `others` what it is spliced with."""
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        begin = random.randint(0, len(text))
        end = min(len(text), begin + random.choice([0, 1, 1, 2, 5, 20]))
        text = random.choice(_EDITS)(random, text, begin, end, others, pieces)
    return text[:200_000]


def _delete(random: Random, text: str, begin: int, end: int, *_: Any) -> str:
    return text[:begin] + text[end:]


def _insert(random: Random, text: str, begin: int, end: int, others: Any, pieces: Sequence[str]) -> str:
    return text[:begin] + (random.choice(pieces) if random.random() < 0.7 else word(random, 2)) + text[begin:]


def _repeat(random: Random, text: str, begin: int, end: int, *_: Any) -> str:
    times = random.choice([2, 2, 2, 3, 3, 10, 10, 100]) if random.random() < 0.99 else 3000
    return text[:begin] + text[begin:end] * times + text[end:]


def _replace(random: Random, text: str, begin: int, end: int, *_: Any) -> str:
    return text[:begin] + character(random) + text[begin + 1 :]


def _splice(random: Random, text: str, begin: int, end: int, others: Sequence[str], pieces: Any) -> str:
    other = random.choice(others) if others else text
    at = random.randint(0, len(other))
    return text[:begin] + other[at:] if random.random() < 0.5 else text[:begin] + other[at : at + 30] + text[end:]


def _cut(random: Random, text: str, begin: int, *_: Any) -> str:
    return text[:begin]


def _swap(random: Random, text: str, begin: int, end: int, *_: Any) -> str:
    middle = (begin + end) // 2
    return text[:begin] + text[middle:end] + text[begin:middle] + text[end:]


_EDITS: list[Callable[..., str]] = [_delete, _delete, _insert, _insert, _repeat, _replace, _splice, _cut, _swap]


def value(random: Random, depth: int = 3) -> Any:
    """A JSON value, sometimes one that JSON itself cannot write."""
    draw = random.randrange(9 if depth else 7)
    if draw == 0:
        return None
    if draw == 1:
        return random.random() < 0.5
    if draw < 4:
        return number(random)
    if draw < 7:
        return word(random)
    if draw == 7:
        return [value(random, depth - 1) for _ in range(random.randint(0, 3))]
    return {word(random, 3): value(random, depth - 1) for _ in range(random.randint(0, 3))}


def number(random: Random) -> Any:
    """A number of JSON; sometimes not finite, or larger than any float."""
    sign = random.choice([1, 1, 1, -1])
    draw = random.random()
    if draw < 0.6:
        return sign * size(random)
    if draw < 0.9:
        return sign * round(random.random() * 10 ** random.randint(-3, 4), random.randint(0, 5))
    return sign * random.choice([0.0, 1e-7, 0.1, 1e300, 5e-324, 1.7e308, 10**400, math.inf, math.nan, 2**53 + 1, 1e16])


def changed_value(random: Random, given: Any, others: Sequence[Any], make: Callable[[Random], Any]) -> Any:
    """A JSON value after some random edits of its parts; `make` makes new parts, `others` lend theirs."""
    own: Any = copied(given)
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        holder = [own]
        places = list(places_in(holder))
        inside, key = random.choice(places)
        draw = random.random()
        if draw < 0.3 and inside is not holder:
            del inside[key]
        elif draw < 0.5:
            inside[key] = make(random)
        elif draw < 0.7 and others:
            lent = list(places_in([random.choice(others)]))
            source, at = random.choice(lent)
            inside[key] = copied(source[at])
        elif draw < 0.85:
            source, at = random.choice(places)
            inside[key] = copied(source[at])
        elif isinstance(inside, dict):
            inside[random.choice([word(random, 4), *map(str, inside)])] = inside[key]
        else:
            inside.append(copied(inside[key]))
        own = holder[0]
    return own


def copied(given: Any) -> Any:
    """A copy of a JSON value, for which it may not be nested too deeply."""
    return json.loads(json.dumps(given))


def places_in(holder: Any) -> Any:
    """All places of values in a list or dict that holds them: (container, key)."""
    pending = [holder]
    while pending:
        inside = pending.pop()
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            yield inside, key
            if isinstance(inside[key], (dict, list)):
                pending.append(inside[key])
