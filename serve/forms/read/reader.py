"""Reads what a model writes in its form, as it comes, into content, thinking and calls."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from dataclasses import replace

from ....engine.decode.randomness import fresh_bits
from .deltas import Delta, Message, joined, message_of
from .harmony_script import HarmonyScript
from .reading import Reading
from .scanner import Reads, Scanner
from .script import Script

_ALNUM = string.ascii_letters + string.digits


class Reader:
    """Reads one answer. What it finds does not depend on how the stream is split; of no text it raises anything.

    reasoning_tokens: how many tokens were thinking, of those that `feed` took, with the markers around it
    """

    def __init__(self, reading: Reading, new_id: Callable[[], str] | None = None) -> None:
        length = reading.family.id_length
        self._new_id = new_id or (lambda: random_id(length))
        self._vocabulary = reading.spelling.vocabulary
        self._scanner = Scanner()
        self._found: list[Delta] = []
        self._all: list[Delta] = []
        self.reasoning_tokens = 0
        script = HarmonyScript if reading.family.name == "harmony" else Script
        self._script = script(reading, self._scanner, self._found.append, self._new_id)
        self._steps: Reads | None = self._script.run()

    def feed(self, ids: Iterable[int]) -> list[Delta]:
        """What comes of these tokens, EOS not among them. Raises OptionError for what are no token ids."""
        found: list[Delta] = []
        for token in ids:
            was_thinking = self._script.is_thinking
            found += self.feed_bytes(self._vocabulary.decode((token,)))
            self.reasoning_tokens += was_thinking or self._script.is_thinking
        return joined(found)

    def feed_bytes(self, data: bytes) -> list[Delta]:
        """What comes of these bytes, in which tokens of their own are as `marker_bytes` says."""
        self._scanner.data += data
        return self._go_on()

    def finish(self) -> list[Delta]:
        """What comes when there is no more."""
        self._scanner.ended = True
        return self._go_on()

    @property
    def message(self) -> Message:
        """All that was read so far."""
        return replace(message_of(self._all), stopped=self._script.is_stopped)

    def _go_on(self) -> list[Delta]:
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        found = joined(self._found)
        self._found.clear()
        self._all += found
        return found


def random_id(length: int) -> str:
    """The id of a call: so many letters and digits, or as OpenAI's if 0."""
    if not length:
        return f"call_{fresh_bits(96):024x}"
    return "".join(_ALNUM[fresh_bits(32) % len(_ALNUM)] for _ in range(length))
