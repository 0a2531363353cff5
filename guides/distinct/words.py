"""Numbers, true, false and null, as what equal ones have in common."""

from __future__ import annotations

import re
from typing import Any

from ..limits import spend

_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?\Z")


def word_of(word: bytes) -> tuple[Any, ...]:
    """What equal numbers have in common: sign, digits and power of ten; of anything else, itself."""
    spend(len(word))
    number = _NUMBER.match(word)
    if not number:
        return ("literal", word)
    sign, whole, fraction, power = number.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    short = digits.rstrip(b"0")
    if not short:
        return ("number", b"", b"", 0)
    return ("number", sign, short, _whole_number(power) - len(fraction) + len(digits) - len(short))


def _whole_number(digits: bytes) -> int:
    """What int() says, of more digits than it reads at a time, too."""
    sign = -1 if digits[:1] == b"-" else 1
    plain = digits.lstrip(b"+-").lstrip(b"0")
    spend(len(plain) * len(plain) >> 8)
    total = 0
    for at in range(0, len(plain), 4000):
        part = plain[at : at + 4000]
        total = total * 10 ** len(part) + int(part)
    return sign * total
