"""Spellings of characters in JSON strings: literal or escaped, for single characters and prepared sets."""

from __future__ import annotations

import json
import re
from collections import abc
from collections.abc import Callable, Iterable
from typing import Literal as OneOf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels.answers import NEVER
from ...automata.charsets import ALL, intersect, negate, normalise, single
from ...automata.positions import shortest_in_table
from ...cached import cached
from ...graph.graph import Edge
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Reference, Repeat, Sequence, Table

Escapes = OneOf["canonical", "any"]

SPECIAL: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
PLAIN: Ranges = negate(SPECIAL)
SPECIAL_BYTES = (*range(0x20), 0x22, 0x5C)
SHORT = {0x08: b"b", 0x09: b"t", 0x0A: b"n", 0x0C: b"f", 0x0D: b"r", 0x22: b'"', 0x5C: b"\\"}
SHORT_CODES: Ranges = tuple(sorted((code, code) for code in SHORT))
ESCAPED, WRITTEN_OUT = 2, 6


_ENCODER = json.JSONEncoder(ensure_ascii=False)
_LISTING = json.JSONEncoder(ensure_ascii=False, separators=("\n", ""))
_PLAIN_TEXT = re.compile(r"[ !#-\[\]-~]*\Z")


def spelt(text: str) -> bytes:
    """Spell a text as canonical JSON, with its quotes."""
    return _ENCODER.encode(text).encode()


def all_spelt(texts: Iterable[str]) -> list[bytes]:
    """Spell texts as canonical JSON, with their quotes."""
    listed = list(texts)
    if _PLAIN_TEXT.match("".join(listed)):  # true of nearly all names, and faster to test than to encode
        return [b'"%b"' % text.encode() for text in listed]
    return _LISTING.encode(listed)[1:-1].encode().split(b"\n") if listed else []


@cached(4096, 8 << 20)
def spell_chars(ranges: Ranges, escapes: Escapes) -> Node:
    """Return one character of `ranges` inside a JSON string."""
    raw = intersect(ranges, PLAIN)
    items: list[Node] = [Chars(raw)] if raw else []
    after = after_backslash(ranges, escapes)
    if after.items:
        items.append(Sequence((Literal(b"\\"), after)))
    return items[0] if len(items) == 1 else Alternation(tuple(items))


@cached(4096, 8 << 20)
def after_backslash(ranges: Ranges, escapes: Escapes) -> Alternation:
    """Return the syntax after the backslash for the escapes of the characters `ranges`."""
    if escapes == "any":
        return Alternation(tuple(_any_escapes(ranges)))
    codes = [code for low, high in intersect(ranges, SPECIAL) for code in range(low, high + 1)]
    return Alternation(tuple(Literal(SHORT.get(code, b"u%04x" % code)) for code in codes))


def bytes_of(ranges: Ranges) -> int:
    """Return the fewest bytes that spell a character of the set."""
    raw = intersect(ranges, PLAIN)
    plain = len(chr(raw[0][0]).encode()) if raw else WRITTEN_OUT
    return min(plain, ESCAPED) if intersect(ranges, SHORT_CODES) else plain


def free_character(escapes: Escapes) -> Node:
    """Return any character inside a JSON string."""
    return spell_chars(ALL, escapes)


def spell(node: Node, escapes: Escapes) -> Node:
    """Return the texts of a syntax node as spelt inside a JSON string; rules it refers to must be spelt as well.

    Tables are allowed with canonical escapes only.
    """
    match node:
        case Chars(ranges):
            return node if escapes == "canonical" and _stand_for_themselves(ranges) else spell_chars(ranges, escapes)
        case Literal(data):
            if escapes == "canonical":
                return Literal(spelt(data.decode())[1:-1])
            return Sequence(tuple(spell_chars(single(ord(char)), escapes) for char in data.decode()))
        case Sequence(items):
            return Sequence(tuple([spell(item, escapes) for item in items]))
        case Alternation(items):
            return Alternation(tuple([spell(item, escapes) for item in items]))
        case Repeat(item, least, most):
            return Repeat(spell(item, escapes), least, most)
        case Table() if escapes == "canonical":
            return spell_table(node)
        case Reference():
            return node
        case _:
            raise AssertionError("a table is spelt byte by byte")


def _stand_for_themselves(ranges: Ranges) -> bool:
    """Test whether a nonempty set has no character that needs an escape; faster than a cache lookup."""
    return bool(ranges) and all(
        (high < 0x5C or low > 0x5C) and (low > 0x22 or 0x20 <= low <= high < 0x22) for low, high in ranges
    )


def spell_table(table: Table) -> Table:
    """Return the texts of a table over UTF-8 as spelt inside a canonical JSON string.

    Bytes above ASCII are literal, so only the transitions of special ASCII characters move behind a backslash.
    """
    special = list(SPECIAL_BYTES)
    count = len(table.transitions)
    rows: list[NDArray[np.int32]] = []

    def add(edges: dict[int, int]) -> int:
        row = np.full(256, -1, np.int32)
        for byte, target in edges.items():
            row[byte] = target
        rows.append(row)
        return count + len(rows) - 1

    transitions = table.transitions.copy()
    transitions[:, special] = -1
    known: dict[bytes, int] = {}
    for state in np.flatnonzero((table.transitions[:, special] >= 0).any(axis=1)).tolist():
        targets = table.transitions[state, special]
        key = targets.tobytes()
        if key not in known:
            known[key] = _after_backslash(dict(zip(special, targets.tolist(), strict=True)), add)
        transitions[state, 0x5C] = known[key]
    accepting = np.concatenate([table.accepting, np.zeros(len(rows), np.bool_)])
    return Table(np.concatenate([transitions, *(row[None] for row in rows)]), accepting, table.start)


def _after_backslash(targets: dict[int, int], add: Callable[[dict[int, int]], int]) -> int:
    """Add the states that read an escape after its backslash and lead to its character's target; return the first."""
    edges = {SHORT[code][0]: target for code, target in targets.items() if target >= 0 and code in SHORT}
    lasts: dict[int, int] = {}
    for high in (0, 1):
        last = {
            b"0123456789abcdef"[code & 15]: targets[code]
            for code in range(16 * high, 16 * high + 16)
            if targets[code] >= 0 and code not in SHORT
        }
        if last:
            lasts[0x30 + high] = add(last)
    if lasts:
        zero = ord("0")
        edges[ord("u")] = add({zero: add({zero: add(lasts)})})
    return add(edges)


def fewest_bytes(node: Node) -> int:
    """Return the length of the shortest text of a node without references, in bytes."""
    match node:
        case Chars(ranges):
            return len(chr(ranges[0][0]).encode())
        case Literal(data):
            return len(data)
        case Sequence(items):
            return sum(fewest_bytes(item) for item in items)
        case Alternation(items):
            return min((fewest_bytes(item) for item in items), default=NEVER)
        case Repeat(item, least, _):
            return least * fewest_bytes(item) if least else 0
        case Table():
            return shortest_in_table(node)
        case _:
            raise AssertionError("strings refer to no rules")


def has_table(node: Node) -> bool:
    """Test whether a node contains a table, whose language is bytes rather than characters."""
    match node:
        case Table():
            return True
        case Sequence(items) | Alternation(items):
            return any(has_table(item) for item in items)
        case Repeat(item, _, _):
            return has_table(item)
        case _:
            return False


def _any_escapes(ranges: Ranges) -> list[Node]:
    """Return the syntax after the backslash with all escapes allowed, but no lone surrogates."""
    short = {**SHORT, 0x2F: b"/"}
    found: list[Node] = [Literal(text) for code, text in short.items() if intersect(ranges, single(code))]
    for low, high in intersect(ranges, ((0, 0xD7FF), (0xE000, 0xFFFF))):
        found.append(Sequence((Literal(b"u"), hexadecimal(low, high))))
    for low, high in intersect(ranges, ((0x10000, 0x10FFFF),)):
        found += _surrogate_pairs(low, high)
    return found


def _surrogate_pairs(low: int, high: int) -> list[Node]:
    """Return the escapes of characters above U+FFFF: pairs of surrogates."""
    parts: list[Node] = []
    while low <= high:
        lead = 0xD800 + ((low - 0x10000) >> 10)
        first = 0xDC00 + ((low - 0x10000) & 0x3FF)
        if first == 0xDC00 and high - low >= 0x3FF:
            last_lead = 0xD800 + ((high + 1 - 0x10000) >> 10) - 1
            leads, trails = hexadecimal(lead, last_lead), hexadecimal(0xDC00, 0xDFFF)
            low = 0x10000 + ((last_lead - 0xD800 + 1) << 10)
        else:
            last = min(0xDFFF, first + high - low)
            leads, trails = hexadecimal(lead, lead), hexadecimal(first, last)
            low += last - first + 1
        parts.append(Sequence((Literal(b"u"), leads, Literal(b"\\u"), trails)))
    return parts


def hexadecimal(low: int, high: int, digits: int = 4) -> Node:
    """Return the numbers low ... high as hexadecimal digits of either case."""
    if digits == 0:
        return Literal(b"")
    step = 16 ** (digits - 1)
    parts: list[Node] = []
    while low <= high:
        first, within = divmod(low, step)
        last = high // step
        if within == 0 and (high + 1 - first * step) >= step:
            last = (high + 1) // step - 1
            rest = hexadecimal(0, step - 1, digits - 1)
        else:
            last = first
            rest = hexadecimal(within, min(high - first * step, step - 1), digits - 1)
        parts.append(Sequence((_hex_digits(first, last), rest)))
        low = (last + 1) * step
    return parts[0] if len(parts) == 1 else Alternation(tuple(parts))


def _hex_digits(low: int, high: int) -> Node:
    digits = "0123456789abcdef"[low : high + 1]
    return Chars(tuple((ord(char), ord(char)) for char in sorted(set(digits + digits.upper()))))


PLAIN_ASCII: Ranges = intersect(PLAIN, ((0, 0x7F),))


class CharacterTransitions(NamedTuple):
    """The characters that lead to each state.

    plain: literal ASCII characters as (first, last, state); others: for a state, the numbers of the atoms with
    characters of more bytes
    """

    plain: list[tuple[int, int, int]]
    others: list[tuple[int, tuple[int, ...]]]


class Alphabet:
    """Disjoint sets of characters, prepared for spelling."""

    def __init__(self, sets: abc.Sequence[Ranges], escapes: Escapes) -> None:
        self.escapes: Escapes = escapes
        self._sets = sets
        self._unions: dict[tuple[int, ...], Ranges] = {}
        self._plain = sorted(
            (low, high, number) for number, ranges in enumerate(sets) for low, high in intersect(ranges, PLAIN_ASCII)
        )
        self._others = [
            number for number, ranges in enumerate(sets) if escapes == "any" or intersect(ranges, PLAIN_ASCII) != ranges
        ]

    def ways(self, row: abc.Sequence[int]) -> CharacterTransitions:
        """Return the ways of characters if set number i leads to row[i], or nowhere if that is negative."""
        plain: list[Edge] = []
        end = state = -1
        for low, high, number in self._plain:
            if row[number] == state and low == end + 1:
                if state >= 0:
                    plain[-1] = (plain[-1][0], high, state)
            else:
                state = row[number]
                if state >= 0:
                    plain.append((low, high, state))
            end = high
        others: dict[int, tuple[int, ...]] = {}
        for number in self._others:
            if row[number] >= 0:
                others[row[number]] = (*others.get(row[number], ()), number)
        return CharacterTransitions(plain, list(others.items()))

    def union(self, numbers: tuple[int, ...]) -> Ranges:
        """Return the union of these sets."""
        known = self._unions.get(numbers)
        if known is None:
            known = normalise(pair for number in numbers for pair in self._sets[number])
            self._unions[numbers] = known
        return known
