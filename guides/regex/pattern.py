"""Parsing of patterns into the common syntax."""

from __future__ import annotations

import re
from operator import index
from typing import Any, Literal

from ...checks import brief, lone_surrogate
from ...errors import LimitError, OptionError, PatternError
from ..arguments import text_of
from ..syntax import Node
from .ecma_dialect import EcmaReader
from .groups import NamedGroups
from .python_dialect import PythonReader
from .reader import PatternReader
from .resolve import resolve
from .tree import ANY_TEXT, TEXT_END, TEXT_START, Concat, LookaroundAlternation, Looking, Tree, concat, either

Dialect = Literal["python", "ecma"]

_READERS: dict[Dialect, type[PatternReader]] = {"python": PythonReader, "ecma": EcmaReader}
_FLAGS = {"python": re.I | re.M | re.S | re.X | re.A | re.U, "ecma": re.I | re.M | re.S}


def parse(
    pattern: str,
    *,
    flags: int = 0,
    dialect: Dialect = "python",
    search: bool = False,
    max_states: int = 50_000,
) -> Node:
    """Parse a regular expression into plain syntax: exactly the texts that it matches as a whole.

    flags: those of `re` (I, M, S, and for Python's dialect X and A)
    dialect: "python", as `re.fullmatch`; "ecma", ECMA-262 in its `u` mode
    search: accept the texts that contain a match, instead of those that match as a whole
    max_states: bound of the automaton that lookarounds may require; a state takes about 1 KB
    Raises PatternError, LimitError, OptionError.
    """
    pattern = text_of(pattern, "the pattern", 'RegexGuide(r"[0-9]+", vocabulary, flags=re.I)')
    if not isinstance(dialect, str) or dialect not in _FLAGS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"unknown dialect {brief(dialect)}; the dialects are 'python' and 'ecma'")
    flags = flags_of(flags)
    refused = flags & ~int(_FLAGS[dialect])
    if refused or flags & (re.A | re.U) == re.A | re.U:
        raise OptionError(
            f"flags {re.RegexFlag(flags) if flags < 2**16 else brief(flags)} cannot be used in the {dialect} dialect; "
            f"possible are {_FLAGS[dialect]!r}, but not ASCII and UNICODE together"
        )
    lone = lone_surrogate(pattern)
    if lone >= 0:
        reason = "this is a lone surrogate, which no text of UTF-8 can have"
        raise PatternError(reason, pattern.encode(errors="replace").decode(), lone)
    try:
        tree = _READERS[dialect](pattern, flags & ~int(re.U)).read()
        if search:
            tree = _search_tree(tree)
        if isinstance(tree, Looking):
            return resolve(tree, max_states)
        return tree
    except RecursionError:
        raise LimitError(
            "the pattern nests groups deeper than the rest of Python's stack allows; write it with fewer levels"
        ) from None


def named_groups(pattern: str, flags: int, dialect: Dialect) -> NamedGroups | None:
    """Return the named groups of a pattern that `parse` accepts; None if it has none."""
    reader = _READERS[dialect](pattern, flags & ~int(re.U), keeps_groups=True)
    tree = reader.read()
    return NamedGroups(tree, reader.lazy) if reader.names else None


def flags_of(flags: Any) -> int:
    """Return the flags of `re` as an int. Raises OptionError for anything else."""
    try:
        number = index(flags)
    except TypeError:
        number = -1
    if isinstance(flags, bool) or number < 0:
        raise OptionError(f"flags={brief(flags)}: expected flags of `re`, such as re.I | re.S, or 0 for none")
    return number


def _search_tree(tree: Tree) -> Tree:
    """Return the language of texts that contain a match. Leading and trailing anchors are resolved directly."""
    branches = tree.items if isinstance(tree, LookaroundAlternation) else (tree,)
    return either([_strip_anchors(branch) for branch in branches])


def _strip_anchors(branch: Tree) -> Tree:
    items = branch.items if isinstance(branch, Concat) else (branch,)
    begin, end = 0, len(items)
    while begin < end and items[begin] is TEXT_START:
        begin += 1
    while end > begin and items[end - 1] is TEXT_END:
        end -= 1
    before = () if begin else (ANY_TEXT,)
    after = () if end < len(items) else (ANY_TEXT,)
    return concat([*before, *items[begin:end], *after])
