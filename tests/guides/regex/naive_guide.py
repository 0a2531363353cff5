"""The guide of the Outlines blog: a token is allowed if the text with it is a partial match of the pattern.

States are texts, numbered as they are met; a mask is a loop over the whole vocabulary. It shares nothing
with the library but the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import regex
from numpy.typing import NDArray
from trellm import Vocabulary


class PartialMatchGuide:
    """Texts that match a pattern as a whole; tokens must be whole characters."""

    start = 0

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.texts = [""]
        self._pattern = regex.compile(pattern)
        self._tokens = [None if text is None else text.decode() for text in vocabulary.tokens]
        self._numbers = {"": 0}

    def viable(self, text: str) -> bool:
        return self._pattern.fullmatch(text, partial=True) is not None

    def is_accepting(self, state: int) -> bool:
        return self._pattern.fullmatch(self.texts[state]) is not None

    def advance(self, state: int, token: int) -> int:
        if token in self.vocabulary.eos_ids:
            return state if self.is_accepting(state) else -1
        added = self._tokens[token]
        if not added or not self.viable(self.texts[state] + added):
            return -1
        text = self.texts[state] + added
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def mask(self, state: int) -> NDArray[np.uint32]:
        return packed([t for t in range(self.vocabulary.size) if self.advance(state, t) >= 0], self.vocabulary.size)

    def distance(self, state: int) -> int:
        """By breadth-first search over texts; only for languages in which it ends soon."""
        layer, steps = {self.texts[state]}, 0
        while not any(self._pattern.fullmatch(text) for text in layer):
            after = {text + token for text in layer for token in self._tokens if token}
            layer = {text for text in after if self.viable(text)}
            steps += 1
            assert layer, "a text that is a partial match can be completed"
        return steps


def packed(tokens: Sequence[int], size: int) -> NDArray[np.uint32]:
    """Token ids as a packed mask."""
    mask = np.zeros((size + 31) // 32, np.uint32)
    for token in tokens:
        mask[token >> 5] |= np.uint32(1 << (token & 31))
    return mask
