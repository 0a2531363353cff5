"""The one door to the regular expression front end."""

from __future__ import annotations

from ...kept import kept
from ...regex import parse as parse_regex
from ...syntax import Node


@kept(1024, 16 << 20)
def parse(pattern: str) -> Node:
    """The strings in which an ECMA-262 pattern is found. Raises PatternError."""
    return parse_regex(pattern, dialect="ecma", search=True)
