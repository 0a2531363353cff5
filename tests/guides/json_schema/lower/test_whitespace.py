"""White space that is flexible: all that json.dumps writes, and no run without end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.errors import OptionError
from trellm.guides import JSONGuide

from ..test_guide_suite import BYTES, reads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab é\n", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)
INDENTS = st.none() | st.integers(0, 8) | st.sampled_from(["\t", "  ", ""])
SEPARATORS = st.sampled_from([None, (",", ":"), (", ", ": "), (",", ": "), (", ", ":")])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(VALUES, INDENTS, SEPARATORS)
def test_what_python_writes_with_any_indent(value: Any, indent: Any, separators: Any) -> None:
    guide = JSONGuide(True, BYTES)
    assert reads(guide, json.dumps(value, indent=indent, separators=separators, ensure_ascii=False))


@pytest.mark.parametrize("indent", [4, "\t"])
def test_values_within_values(indent: Any) -> None:
    value: Any = 1
    for level in range(31):
        value = [value] if level % 2 else {"a": value}
    assert reads(JSONGuide(True, BYTES), json.dumps(value, indent=indent))


@pytest.mark.parametrize(
    "text",
    [
        "[\n\n1]",
        "[ 1]",
        "[\n" + " " * 129 + "1]",
        "[\n" + "\t" * 33 + "1]",
        "[\n\t 1]",
        "[1,\t2]",
        '{"a"\n:1}',
        "[1] ",
        "[1,  2]",
    ],
)
def test_what_nobody_writes_takes_an_option(text: str) -> None:
    assert not reads(JSONGuide(True, BYTES), text)
    assert reads(JSONGuide(True, BYTES, whitespace="any"), text)


@pytest.mark.parametrize("byte", [b"\t", b"\n", b" ", b"\r"])
def test_no_blank_goes_on_without_end(byte: bytes) -> None:
    guide = JSONGuide(True, BYTES)
    for before in (b"", b"[", b"[1,", b'{"a":', b"[\n", b"[\n\t"):
        state = guide.read(guide.start, before)
        for _ in range(200):
            state = guide.automaton.step(state, byte[0])
            if state < 0:
                break
        assert state < 0


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_bound_on_white_space_between_tokens(most: int) -> None:
    guide = JSONGuide(True, BYTES, whitespace=most)
    parts = ["[", "1", ",", '{"a"', ":", "2", ",", '"b"', ":", "{", "}", "}", ",", "[", "]", "]"]
    for count in (most, most + 1):
        for at in range(len(parts) - 1):
            blanks = "\n\t \r"[:count]
            assert reads(guide, "".join([*parts[: at + 1], blanks, *parts[at + 1 :]])) == (count == most), at
    whole = (" " * most).join(parts)
    assert reads(guide, whole)
    if most:
        assert not reads(guide, f" {whole}") and not reads(guide, f"{whole} ")


def test_bounds_that_are_none() -> None:
    for bound in (-1, 1_001):
        with pytest.raises(OptionError, match="0 to 1,000 characters between two tokens"):
            JSONGuide(True, BYTES, whitespace=bound)
    with pytest.raises(OptionError, match="whitespace=True"):
        JSONGuide(True, BYTES, whitespace=True)
