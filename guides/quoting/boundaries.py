"""Places where quotations may begin and end in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...checks import brief
from ...errors import OptionError

Boundary = Literal["word", "character", "sentence", "line"]
Places = NDArray[np.int64]

_LINE = re.compile(r"\S(?:[^\n]*\S)?")
_BLANK_LINE = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_STOP = re.compile(r"([.!?…]++[\"'”’»)\]]*+)|[。！？]++[」』”’）]*+")
_GAP = re.compile(r"\s*")
# Kinds of characters, as sets of bits: a letter, digit or _; a digit; what belongs to the character before it; white
# space; ' or ’; point or comma; what ties the character after it to the one before it.
LETTER, DIGIT, MARK, SPACE, APOSTROPHE, POINT, TIE = (1 << bit for bit in range(7))


def boundaries(text: str, rule: Boundary) -> tuple[Places, Places]:
    """The places in a text where quotations may begin, and those where they may end: int64, ascending.

    "character": everywhere between characters. "word": at both ends of a word, and of each mark that is neither a
    word nor white space; letters, digits and _ make words, and so do an apostrophe between letters and a point or
    comma between digits; each Han and Hiragana character is a word. "sentence": a sentence ends after . ! ? or … and
    closing quotes where white space follows and then no lower-case letter, after 。！？, and at a blank line. "line":
    a line without the white space around it.
    """
    return boundaries_in((text,), rule)


def boundaries_in(documents: Sequence[str], rule: Boundary | tuple[int, ...]) -> tuple[Places, Places]:
    """As `boundaries`, in several documents at once; places count one character between one document and the next.

    A rule may also say how long the pieces are of which one document consists: quotations are made of whole ones.
    """
    if isinstance(rule, tuple):
        are_lengths = all(type(each) is int and each > 0 for each in rule)
        if not are_lengths or len(documents) != 1 or sum(rule) != len(documents[0]):
            raise OptionError(f"boundary={brief(rule)}: the lengths of the pieces of which the one context consists")
        places = np.cumsum([0, *rule])
        return places[:-1], places[1:]
    if rule == "character":
        return _characters(documents)
    if rule == "word":
        return _words(documents)
    if rule == "sentence":
        # Two ends of lines are a blank line, as which the end of a document counts; one of them is taken out again.
        table = _table(_sentences("\n\n".join(documents)))
        begins = np.cumsum([0, *(len(document) + 2 for document in documents)])
        table -= np.searchsorted(begins, table[:, :1], "right") - 1
    elif rule == "line":
        table = _table([match.span() for match in _LINE.finditer("\n".join(documents))])
    else:
        raise OptionError(f"boundary={brief(rule)}: one of {', '.join(map(repr, get_args(Boundary)))}")
    return table[:, 0], table[:, 1]


def _table(spans: list[tuple[int, int]]) -> Places:
    return np.array(spans, np.int64).reshape(-1, 2)


def gaps(documents: Sequence[str]) -> Places:
    """The places of what stands between the documents, one character each, and behind the last one."""
    return np.cumsum([len(document) + 1 for document in documents]) - 1


def _characters(documents: Sequence[str]) -> tuple[Places, Places]:
    between = gaps(documents)
    inside = np.ones(int(between[-1]), np.bool_)
    inside[between[:-1]] = False
    first = np.flatnonzero(inside)
    return first, first + 1


def code_points(text: str) -> NDArray[np.uint32]:
    """The numbers of the characters."""
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))


def _words(documents: Sequence[str]) -> tuple[Places, Places]:
    codes = code_points("\n".join(documents))
    met = np.zeros(0x110000, np.bool_)
    met[codes] = True
    kinds = np.zeros(0x110000, np.uint8)
    for code in np.flatnonzero(met).tolist():
        kinds[code] = _kind(chr(code))
    kind = np.concatenate([[SPACE], kinds[codes], [SPACE]]).astype(np.uint8)  # as is what stands between documents
    before, after = kind[:-2], kind[2:]
    joins = (kind[1:-1] & APOSTROPHE != 0) & (before & after & LETTER != 0)
    joins |= (kind[1:-1] & POINT != 0) & (before & after & DIGIT != 0)
    kind[1:-1][joins] |= LETTER
    space = kind & SPACE != 0
    tied = (kind[1:] & kind[:-1] & LETTER != 0) | (kind[1:] & MARK != 0) | (kind[:-1] & TIE != 0)
    border = ~tied | space[1:] | space[:-1]
    return np.flatnonzero(border[:-1] & ~space[1:-1]), np.flatnonzero(border[1:] & ~space[1:-1]) + 1


def _kind(character: str) -> int:
    """The bits of a character."""
    if character.isspace():
        return SPACE
    if character in "'’":
        return APOSTROPHE
    if character in ".,":
        return POINT
    if character == "\u200d":
        return MARK | TIE
    if "\ufe00" <= character <= "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff":
        return MARK  # it says how a symbol looks
    if unicodedata.category(character)[0] == "M":
        return MARK | LETTER
    if character.isalnum() or character == "_":
        return (0 if _stands_alone(character) else LETTER) | (DIGIT if character.isdecimal() else 0)
    return 0


def _stands_alone(character: str) -> bool:
    """Tell whether the character is of a script that writes words side by side: Han or Hiragana."""
    return (
        "\u3040" <= character <= "\u309f"
        or "\u3400" <= character <= "\u9fff"
        or "\uf900" <= character <= "\ufaff"
        or character >= "\U00020000"
    )


def _sentences(text: str) -> list[tuple[int, int]]:
    """The spans of sentences, without the white space between them."""
    cuts = {match.start() for match in _BLANK_LINE.finditer(text)}
    for match in _STOP.finditer(text):
        gap = _GAP.match(text, match.end())
        assert gap is not None
        if match[1] is None or (gap.end() > gap.start() and not text[gap.end() : gap.end() + 1].islower()):
            cuts.add(match.end())
    spans: list[tuple[int, int]] = []
    begin = 0
    for end in [*sorted(cuts), len(text)]:
        piece = text[begin:end]
        if stripped := piece.strip():
            first = begin + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        begin = end
    return spans
