"""Streaming bytes in pieces gives the text of the whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.tokenizers_adapter import TextStream


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.binary(max_size=4) | st.text(max_size=3).map(str.encode), max_size=12))
def test_pieces_join_to_the_whole(pieces: list[bytes]) -> None:
    stream = TextStream()
    for _ in range(2):  # a finished stream begins anew
        text = "".join(map(stream.push, pieces)) + stream.finish()
        assert text == b"".join(pieces).decode(errors="replace")


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.text(max_size=8))
def test_characters_come_whole_and_at_once(text: str) -> None:
    stream = TextStream()
    for character in text:
        *first, last = character.encode()
        assert [stream.push(bytes([byte])) for byte in first] == [""] * len(first)
        assert stream.push(bytes([last])) == character
    assert stream.finish() == ""


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    stream = TextStream()
    assert stream.push("a🙂".encode()[:3]) == "a"
    assert stream.finish() == "\ufffd"
