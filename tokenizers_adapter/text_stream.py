"""Incremental decoding of token bytes to text, in whole characters."""

from __future__ import annotations

import codecs


class TextStream:
    """An incremental UTF-8 decoder: takes the bytes of each token, and returns the characters that are complete.

    Invalid bytes become U+FFFD, as in `bytes.decode(errors="replace")` of the whole.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """Return the text that `data` completes. The start of an unfinished character is kept for the next call."""
        return self._decoder.decode(data)
