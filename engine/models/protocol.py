"""What the decode loop knows of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ...tokenizers_adapter import Vocabulary
from ..decode.cache import Slots

Hidden = Any


class Tokenizer(Protocol):
    """Turns prompts into token ids."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with whatever the model expects before it."""
        ...


class Model(Protocol):
    """A language model with its cache; `forward` reads tokens, `logits` says what may come next.

    The two are apart so that a step may ask for the logits of a few tokens only. The loop calls them under
    `torch.inference_mode`.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """The bytes of every token; `vocabulary.size` is the width of the logits."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """What encodes prompts."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens a row may hold, None without limit."""
        ...

    @property
    def sparse_head_limit(self) -> int:
        """Up to how many tokens `logits` is cheaper for those tokens than for all; 0 if never."""
        ...

    def make_cache(self, rows: int, capacity: int) -> Slots:
        """Room for `rows` rows of `capacity` tokens."""
        ...

    def cache_bytes(self, rows: int, capacity: int) -> int:
        """How much memory `make_cache` would take; 0 for next to nothing."""
        ...

    def forward(self, chunks: Sequence[Sequence[int]], cache: Slots, first: int = 0) -> Hidden:
        """Read one or more further tokens in each of the rows `first`, `first + 1`, ... of the cache.

        Returns what `logits` needs about the last token of each chunk.
        """
        ...

    def logits(self, hidden: Hidden, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Logits of the token that follows: float32 [len(rows), V], or [len(rows), len(ids)] for int64 `ids`.

        `rows` index the entries of `hidden`. Raises ModelError for a wrong shape.
        """
        ...


@runtime_checkable
class SourceModel(Model, Protocol):
    """A model that reads the prompt, its source, apart from the output: encoder and decoder."""

    @property
    def start_ids(self) -> tuple[int, ...]:
        """The tokens that the decoder starts from; every row of the cache begins with them."""
        ...

    @property
    def source_context(self) -> int | None:
        """The most tokens a source may have, None without limit."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """What every output begins with, and what is not a part of it: a space, or nothing."""
        ...

    def encode(self, sources: Sequence[Sequence[int]], cache: Slots, first: int = 0) -> None:
        """Read the sources of the empty rows `first`, `first + 1`, ...; rows forked from these share them."""
        ...
