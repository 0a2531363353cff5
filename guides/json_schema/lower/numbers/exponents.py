"""Sets of exponents as the bits of an integer, and how their texts are read: `+05` and `5` and `005` are the same one.

Bit `exponent - LEAST_EXPONENT` of each member is set. What has come of a text is `(E, members)` behind the `e`;
`(FIRST, natural, ends)` before the first digit or behind zeros, where bit n of `natural` is set for the number n;
`(FURTHER, ends, tens, hundreds)` behind the first digit, with bits for the next one, and for the next two.
"""

from __future__ import annotations

from .....kernels.answers import NEVER
from ....kept import kept

LEAST_EXPONENT, GREATEST_EXPONENT = -324, 308
"""Those of finite floats."""
E, FIRST, FURTHER = range(10, 13)
PLUS_BYTE, MINUS_BYTE, ZERO_BYTE = b"+-0"

Come = tuple[int, ...]


def between(least: int, greatest: int) -> int:
    """The exponents from `least` to `greatest`, as far as floats have them."""
    low, high = max(least, LEAST_EXPONENT), min(greatest, GREATEST_EXPONENT)
    return 0 if low > high else (1 << (high + 1 - LEAST_EXPONENT)) - (1 << (low - LEAST_EXPONENT))


PLAIN_EXPONENTS = between(16, GREATEST_EXPONENT) | between(LEAST_EXPONENT, -5)
"""Those that json.dumps writes, with a sign and two digits or three."""


def _natural(members: int) -> int:
    """The members from 0 up: bit n is set for n."""
    return members >> -LEAST_EXPONENT


def _mirrored(members: int) -> int:
    """The members from 0 down, without their sign: bit n is set for -n."""
    width = 1 - LEAST_EXPONENT
    return int(f"{members & ((1 << width) - 1):0{width}b}"[::-1], 2)


@kept(4096, 1 << 20)
def exponent_moves(come: Come, *, plain: bool) -> tuple[tuple[int, Come], ...]:
    """The state after each byte that a member goes on with. plain: as json.dumps writes them"""
    digits = ((ZERO_BYTE + digit, _after(come, digit, plain)) for digit in range(10))
    found = [*digits] if come[0] != E or not plain else []
    if come[0] == E:
        found += [
            (PLUS_BYTE, (FIRST, _natural(come[1]), 0)),
            (MINUS_BYTE, (FIRST, _mirrored(come[1]), 0)),
        ]
    return tuple((byte, after) for byte, after in found if exponent_bytes(after, plain=plain) < NEVER)


def _after(come: Come, digit: int, plain: bool) -> Come:
    if come[0] == FURTHER:
        return FURTHER, come[2] >> digit & 1, come[3] >> 10 * digit & 0x3FF, 0
    members = _natural(come[1]) if come[0] == E else come[1]
    if not digit and not plain:
        return FIRST, members, members & 1
    ends, tens, hundreds = members >> digit & 1, members >> 10 * digit & 0x3FF, members >> 100 * digit & (1 << 100) - 1
    return (FURTHER, 0, tens, hundreds if digit else 0) if plain else (FURTHER, ends, tens, hundreds)


def exponent_ends(come: Come) -> bool:
    """Tell whether a text may end."""
    return come[0] in (FIRST, FURTHER) and bool(come[2 if come[0] == FIRST else 1])


def exponent_bytes(come: Come, *, plain: bool) -> int:
    """The bytes to the end of a shortest text; NEVER if there is none."""
    least = 2 if plain else 1
    if come[0] == FURTHER:
        return next((count for count, bits in enumerate(come[1:]) if bits), NEVER)
    if come[0] == FIRST:
        return 0 if come[2] else max(least, _fewest_digits(come[1])) if come[1] else NEVER
    plus, minus = _natural(come[1]), _mirrored(come[1])
    signed = [1 + max(least, _fewest_digits(members)) for members in (plus, minus) if members]
    return min([*signed, *((_fewest_digits(plus),) if plus and not plain else ())], default=NEVER)


def _fewest_digits(natural: int) -> int:
    """The number of digits of the least of some natural numbers."""
    return len(str((natural & -natural).bit_length() - 1))
