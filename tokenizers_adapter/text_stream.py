"""Token bytes to text as they come, never half a character."""

from __future__ import annotations

import codecs


class TextStream:
    """An incremental UTF-8 decoder: give it the bytes of each token, it gives the characters now complete.

    Bytes that cannot be UTF-8 come out as U+FFFD, as in `bytes.decode(errors="replace")` of the whole.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The text that `data` completes; the start of an unfinished character waits for the next call."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """U+FFFD if the bytes so far end inside a character, otherwise nothing; ready for another text."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
