"""States of patterns as what is left to match: what they have in common is there once, and is weighed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trellm.guides.grammar import Alternation, Literal, Sequence

from ..support import Node
from .support import Expression, pattern_language


def literals(node: object) -> list[Literal]:
    """All literals of a node."""
    if isinstance(node, Sequence | Alternation):
        return [each for item in node.items for each in literals(item)]
    return [node] if isinstance(node, Literal) else []


@pytest.mark.parametrize("pattern", ["a" * 200, "ab" * 100, "é" * 100])
def test_a_search_for_a_long_text_holds_each_rest_once(pattern: str) -> None:
    """Of a text of one letter the n-th state has n rests: as bytes of their own 5,000 letters took a gigabyte."""
    expression = pattern_language(pattern)
    assert expression.matches("xx" + pattern + "yy") and not expression.matches(pattern[1:])
    nodes: list[Node] = expression._nodes  # type: ignore[assignment]
    found = [each for node in nodes for each in literals(node)]
    distinct = {id(each): len(each.data) for each in found}
    assert len(distinct) <= len(pattern) + 2 < len(found)
    items = sum(len(node.items) for node in nodes if isinstance(node, Alternation))
    assert expression.held_bytes >= sum(distinct.values()) + 8 * items


@given(st.text("ab", min_size=1, max_size=6), st.text("ab", max_size=12))
def test_texts_that_have_another_in_them(pattern: str, text: str) -> None:
    expression: Expression = pattern_language(pattern)
    assert expression.matches(text) == (re.search(pattern, text) is not None)
