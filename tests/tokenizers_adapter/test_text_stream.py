"""Pieces of a stream of text: bytes that come token by token give the characters of the whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Vocabulary, generate, models

PIECES = st.lists(st.binary(min_size=1, max_size=4) | st.text(min_size=1, max_size=3).map(str.encode), max_size=12)


def streamed(pieces: list[bytes]) -> list[str]:
    """The stream of a model that gives these tokens, one by one."""
    end = len(pieces)
    model = models.from_function(
        lambda ids: [float(token == len(ids) - 1) for token in range(end + 1)], Vocabulary([*pieces, None], (end,))
    )
    return list(generate.text(model).stream([end], heal=False, max_tokens=end + 1))


@settings(max_examples=100, derandomize=True)
@given(PIECES)
def test_pieces_join_to_the_whole(pieces: list[bytes]) -> None:
    assert "".join(streamed(pieces)) == b"".join(pieces).decode(errors="replace")


@settings(max_examples=50, derandomize=True)
@given(st.text(max_size=8))
def test_characters_come_whole_and_at_once(text: str) -> None:
    assert "".join(streamed([bytes([byte]) for byte in text.encode()])) == text
    assert streamed([bytes([byte]) for byte in text.encode()]) == list(text)


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    assert streamed([bytes([byte]) for byte in "a🙂".encode()[:3]]) == ["a", "\ufffd"]
