"""The size of a written value is that of the text, and a value shared many times is measured once."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.guides.json_schema.written_size import written_size

LEAVES = st.none() | st.booleans() | st.integers() | st.text(alphabet='aé世"\n\x00') | st.sampled_from([[], {}])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('aé"', max_size=3), inner, max_size=4)
)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(VALUES, st.sampled_from([None, 0, 1, 4]))
def test_as_it_is_written(value: Any, indent: int | None) -> None:
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    assert written_size(value, indent) == (len(text.encode()), text.count("\n"))


@pytest.mark.parametrize("indent", [None, 2])
def test_what_is_too_long_to_be_written(indent: int | None) -> None:
    value: Any = 0
    for _ in range(100):
        value = [value, value]
    length, lines = written_size(value, indent)
    assert length >= 2**100 and (lines > 2**100) == (indent is not None)
