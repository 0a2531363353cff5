"""Any Python function as a model: logits of the next token from the tokens so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_int, shown
from ...errors import ModelError, OptionError, VocabularyError
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import Chunk
from ..scores import as_list
from ..sending import Sendable
from .blocks.storage import BlockStorage
from .protocol import BEGIN, Memory, Tokenizer

Prefix = tuple[int, ...]
Logits = Callable[[Sequence[int]], Any]
SomeLogits = Callable[[Sequence[int], Sequence[int]], Any]


class FunctionModel(Sendable):
    """A model that calls `logits(ids)` with all tokens of a row at each step. It caches only ids.

    some_logits: optional `some_logits(ids, tokens)`, computes the logits of some tokens only
    """

    begin_id = BEGIN
    block_bytes = 0
    state_bytes = 0
    window: int | None = None

    def __init__(
        self,
        logits: Logits,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer | None = None,
        context: int | None = None,
        some_logits: SomeLogits | None = None,
    ) -> None:
        """Raises OptionError for arguments of wrong types."""
        _check(logits, vocabulary, tokenizer, some_logits)
        self.vocabulary = vocabulary
        self.tokenizer = LongestMatch(vocabulary) if tokenizer is None else tokenizer
        self.context = None if context is None else check_int(context, "context")
        self.sparse_head_limit = vocabulary.size if some_logits is not None else 0
        self._logits = logits
        self._some_logits = some_logits

    def __repr__(self) -> str:
        name = getattr(self._logits, "__name__", type(self._logits).__name__)
        return f"<FunctionModel of {name}, {self.vocabulary.size:,} tokens>"

    def make_memory(self, blocks: int) -> BlockStorage:
        """Return empty memory: tables contain the token ids."""
        return BlockStorage(blocks, 0)

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> list[Prefix]:
        """Return the whole texts, without BEGIN. Only `logits` calls the function."""
        texts = [(*table.tokens, *tokens) for table, tokens in chunks]
        return [text[1:] if text[0] == BEGIN else text for text in texts]

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Memory) -> list[Prefix]:
        """Return the texts up to each of the last ends[i] tokens of chunk i."""
        both = zip(self.forward(chunks, memory), ends, strict=True)
        return [text[: len(text) - back] for text, count in both for back in reversed(range(count))]

    def logits(self, hidden: Sequence[Prefix], rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Call the function once for each row. Raises ModelError for an invalid result."""
        if ids is not None and self._some_logits is not None:
            tokens: list[int] = as_list(ids)
            some = self._some_logits
            return torch.stack([_vector(_call(some, hidden[row], tokens), len(tokens), row) for row in rows])
        full = torch.stack([_vector(_call(self._logits, hidden[row]), self.vocabulary.size, row) for row in rows])
        return full if ids is None else full[:, ids]


class RowError(ModelError):
    """Invalid logits of one row. row: its entry of `hidden`"""

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.row)


def _call(function: Callable[..., Any], text: Prefix, *more: Any) -> Any:
    """Call the function; exceptions for an empty text get a note."""
    try:
        return function(text, *more)
    except Exception as error:
        if not text:
            error.add_note("the prompt is empty, so that the model's function was called without any token")
        raise


def _vector(values: Any, size: int, row: int) -> Tensor:
    """Convert a result of the function to float32 [size]."""
    vector = values if isinstance(values, Tensor) else _array(values, row)
    kinds = {"a sparse tensor": vector.layout != torch.strided, "on the device 'meta'": vector.device.type == "meta",
             "complex numbers": vector.is_complex()}  # fmt: skip
    if wrong := next((kind for kind, found in kinds.items() if found), None):
        raise RowError(f"the model's function returned {wrong}; expected real numbers in memory", row)
    if vector.shape != (size,):
        raise RowError(
            f"the model's function returned logits of shape {tuple(vector.shape)}; expected ({size},), one "
            "for each token",
            row,
        )
    return vector.detach().to(torch.float32)


def _array(values: Any, row: int) -> Tensor:
    """Convert a list or array of numbers to float32; larger values become infinite."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiubcO" or values is None:
            raise TypeError
        with np.errstate(over="ignore"):
            return torch.as_tensor(np.array(array, np.complex64 if array.dtype.kind == "c" else np.float32))
    except (TypeError, ValueError, OverflowError):
        raise RowError(
            f"the model's function returned {shown(values)}; expected a list, NumPy array or tensor of numbers", row
        ) from None


def _check(logits: Any, vocabulary: Any, tokenizer: Any, some_logits: Any) -> None:
    if isinstance(logits, Vocabulary) and callable(vocabulary):
        raise OptionError("models.from_function: the function comes first, before the vocabulary; swap the two")
    if not callable(logits):
        raise OptionError(f"models.from_function: logits={shown(logits)}: a function from token ids to logits")
    if not isinstance(vocabulary, Vocabulary):
        raise OptionError(
            f"models.from_function: vocabulary={shown(vocabulary)}: a Vocabulary, such as "
            "Vocabulary.from_tokenizer(tokenizer)"
        )
    if tokenizer is not None and (
        isinstance(tokenizer, (str, type)) or not callable(getattr(tokenizer, "encode", None))
    ):
        raise OptionError(f"models.from_function: tokenizer={shown(tokenizer)}: anything with encode(text) -> ids")
    if some_logits is not None and not callable(some_logits):
        raise OptionError(
            f"models.from_function: some_logits={shown(some_logits)}: a function from token ids, and the tokens asked "
            "for, to the logits of these"
        )


class LongestMatch:
    """Greedy encoder: takes the longest matching token at each step; ties go to the lowest id."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, int] = {}
        for token, text in enumerate(vocabulary.tokens):
            if text:
                self._ids.setdefault(text, token)
        self._longest = max(map(len, self._ids), default=0)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Raises VocabularyError at the first byte where no token matches."""
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
