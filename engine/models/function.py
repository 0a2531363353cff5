"""Any Python function as a model: logits of the next token from the tokens so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelError, VocabularyError
from ...tokenizers_adapter import Vocabulary
from ..arrays import as_list
from ..cache import Slots, TokenSlots
from .protocol import Tokenizer

Prefix = tuple[int, ...]
Logits = Callable[[Sequence[int]], Any]
SomeLogits = Callable[[Sequence[int], Sequence[int]], Any]


class FunctionModel:
    """A model whose every step calls `logits(ids)` with all tokens of a row: no cache but the ids.

    `some_logits(ids, tokens)`, where given, computes the logits of some tokens only.
    """

    def __init__(
        self,
        logits: Logits,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer | None = None,
        context: int | None = None,
        some_logits: SomeLogits | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = LongestMatch(vocabulary) if tokenizer is None else tokenizer
        self.context = context
        self.few = vocabulary.size if some_logits is not None else 0
        self._logits = logits
        self._some_logits = some_logits

    def make_cache(self, rows: int, capacity: int) -> TokenSlots:
        """Room for the ids of `rows` rows."""
        return TokenSlots(rows, capacity)

    def cache_bytes(self, rows: int, capacity: int) -> int:
        """Token ids: next to nothing."""
        return 0

    def forward(self, chunks: Sequence[Sequence[int]], cache: Slots, first: int = 0) -> list[Prefix]:
        """The prefixes themselves: the function is called only when logits are asked for."""
        assert isinstance(cache, TokenSlots)
        for row, chunk in enumerate(chunks, first):
            cache.append(row, chunk)
        return [tuple(tokens) for tokens in cache.tokens[first : first + len(chunks)]]

    def logits(self, hidden: Sequence[Prefix], rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Calls the function once for every row."""
        if ids is not None and self._some_logits is not None:
            tokens: list[int] = as_list(ids)
            return torch.stack([_vector(self._some_logits(hidden[row], tokens), len(tokens)) for row in rows])
        full = torch.stack([_vector(self._logits(hidden[row]), self.vocabulary.size) for row in rows])
        return full if ids is None else full[:, ids]


def _vector(values: Any, size: int) -> Tensor:
    vector = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values, np.float32))
    if vector.shape != (size,):
        raise ModelError(
            f"the model's function returned logits of shape {tuple(vector.shape)}; expected ({size},), one "
            "for each token"
        )
    return vector.to(torch.float32)


class LongestMatch:
    """Encodes a text by taking, again and again, the longest token that fits; ties go to the lowest id."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, int] = {}
        for token, text in enumerate(vocabulary.tokens):
            if text:
                self._ids.setdefault(text, token)
        self._longest = max(map(len, self._ids), default=0)

    def encode(self, text: str) -> list[int]:
        """Raises VocabularyError at the first place where no token fits."""
        data = text.encode()
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in range(min(self._longest, len(data) - at), 0, -1):
                token = self._ids.get(data[at : at + length])
                if token is not None:
                    ids.append(token)
                    at += length
                    break
            else:
                raise VocabularyError(
                    f"no token of the vocabulary spells {data[at : at + 8]!r}, at byte {at} of the prompt; "
                    "use other characters in the prompt, or a vocabulary that has them"
                )
        return ids
