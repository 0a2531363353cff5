"""Protocols of models for the decode loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from ...checks import shown
from ...errors import OptionError
from ...guides.protocol import Guide
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import Chunk

Hidden = Any
BEGIN = -1
"""Pseudo token id in place of an empty prompt, for a model that can begin a text without any token.

Optional attributes of a model: `begin_id` is this constant, or the id in place of an empty prompt if the tokenizer has
no `bos_token_id`, or None. With `forces_end` True, EOS is the last token of a free text's budget.
"""


def words_behind(ids: Sequence[int]) -> Sequence[int]:
    """Return the tokens after the last image or audio of a prompt; all if it has neither."""
    if not ids or min(ids) >= BEGIN:
        return ids
    return ids[next(place for place in range(len(ids), 0, -1) if ids[place - 1] < BEGIN) :]


MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)
"""Out-of-memory errors of a step, which is then repeated with fewer sequences."""


class Tokenizer(Protocol):
    """An encoder of prompts."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a prompt, with special tokens such as BOS."""
        ...


class Memory(Protocol):
    """A model's KV cache, in blocks of BLOCK tokens, and recurrent states of sequences, in slots."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks of all layers simultaneously; pairs are (from, to)."""
        ...

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states simultaneously; pairs are slots (from, to). Only called if `state_bytes` is not 0."""
        ...


class Runner(Protocol):
    """A means to run a decoder's body over chunks: in packed steps (packed/runner.py), or as rows (body.py)."""

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """Return states [chunks, size] of the last tokens, or [sum(ends), size] of the last ends[i] of chunk i."""
        ...


class Model(Protocol):
    """A language model: `forward` reads tokens, `logits` scores the next ones.

    They are separate, so that a step may compute logits of a few tokens only. Callers use `torch.inference_mode`.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """Bytes of all tokens; `vocabulary.size` is the width of the logits."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder of prompts."""
        ...

    @property
    def context(self) -> int | None:
        """Greatest length of a text in tokens; None for unbounded."""
        ...

    @property
    def sparse_head_limit(self) -> int:
        """Most tokens whose logits alone take less time than all logits; 0 for none."""
        ...

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's keys and values in all layers; 0 for a model without a KV cache."""
        ...

    @property
    def state_bytes(self) -> int:
        """Bytes of a sequence's recurrent states, independent of its length; 0 without any."""
        ...

    @property
    def window(self) -> int | None:
        """Largest attention window of the layers, including the token itself; None if a layer attends to all tokens."""
        ...

    def make_memory(self, blocks: int) -> Memory:
        """Create memory of `blocks` blocks, and of a state slot for each sequence."""
        ...

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Hidden:
        """Read the new tokens of each chunk. Return the input of `logits` for the last token of each.

        Writes keys and values to blocks of the chunks' tables, which are large enough, and recurrent states to their
        slots; does not change tables. Sequences may share blocks, but not slots. A chunk may attend to blocks that
        other chunks of the same call fill, if these blocks lie before the chunk's first token.
        """
        ...

    def logits(self, hidden: Hidden, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Return logits of the next token: float32 [len(rows), V], or [len(rows), len(ids)] for int64 `ids`.

        rows: indices of entries of `hidden`. Raises ModelError for a wrong shape.
        """
        ...


@runtime_checkable
class ScoringModel(Model, Protocol):
    """A model that returns logits after each of the last tokens of a chunk."""

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Memory) -> Hidden:
        """Run `forward`, with the input of `logits` for the last `ends[i]` tokens of chunk i, in order."""
        ...


@runtime_checkable
class DraftedModel(ScoringModel, Protocol):
    """A model that can overwrite the last tokens of a sequence, since it has no recurrent states."""

    @property
    def reads_drafts(self) -> bool:
        """True if the model supports drafts with its runner."""
        ...


@runtime_checkable
class PoolingModel(Model, Protocol):
    """A model with access to its final hidden states, the input of its head."""

    @property
    def embedding_size(self) -> int:
        """Size of a hidden state; 0 without access to hidden states."""
        ...

    def pool(self, hidden: Hidden, rows: Sequence[int]) -> Tensor:
        """Return hidden states of some entries of `hidden`: float32 [len(rows), embedding_size]."""
        ...


class ReadMedia(NamedTuple):
    """A prompt with images or audio: its ids, and the contents to hold while the ids are in use."""

    ids: tuple[int, ...]
    held: tuple[Any, ...]


class ListingModel(Model, Protocol):
    """A model that computes logits of different tokens for each sequence in one call."""

    def logits_listed(self, hidden: Hidden, rows: Sequence[int], several: Sequence[Tensor]) -> Tensor | None:
        """Return logits of each row's int64 tokens: float32 [len(rows), most], padded with arbitrary values.

        None if calls of `logits` for each row are as fast.
        """
        ...


@runtime_checkable
class SourceModel(Model, Protocol):
    """An encoder-decoder model, which reads the prompt as its source, separately from the output."""

    @property
    def start_ids(self) -> tuple[int, ...]:
        """Start tokens of the decoder, the first ones of each output."""
        ...

    @property
    def source_context(self) -> int | None:
        """Greatest length of a source in tokens; None for unbounded."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """Bytes before each output that are not part of it: b" " or b""."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Any]:
        """Return encoded sources, for `BlockTable.source`."""
        ...

    def source_bytes(self, length: int) -> int:
        """Bytes of an encoded source of `length` tokens."""
        ...


_OF_MODELS = (
    "vocabulary",
    "tokenizer",
    "context",
    "sparse_head_limit",
    "block_bytes",
    "state_bytes",
    "window",
    "make_memory",
    "forward",
    "logits",
)
_OF_GUIDES = ("vocabulary", "start", "mask", "advance", "is_accepting", "distance")


def is_model(value: Any) -> bool:
    """Test whether an object has the attributes of a model that the decode loop needs."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in _OF_MODELS)


def check_model(model: Any, call: str, *others: Any) -> None:
    """Raise OptionError unless `model` is a model. call: the called function; others: its other arguments"""
    if is_model(model):
        return
    if any(is_model(other) for other in others):
        raise OptionError(f"{call}: the model comes first, before {shown(model)}; swap the two")
    raise OptionError(f"{call}: the first argument must be a model of trellm, not {shown(model)}; {_to_model(model)}")


def check_guide(guide: object) -> None:
    """Raise OptionError unless `guide` is a guide or None."""
    if guide is None or (not isinstance(guide, type) and all(hasattr(guide, name) for name in _OF_GUIDES)):
        return
    raise OptionError(
        f"guide={shown(guide)}: a guide such as guides.RegexGuide(pattern, model.vocabulary), or None for free text; "
        "generate.regex, generate.json and the others make it themselves"
    )


def _to_model(value: Any) -> str:
    """Return advice on how to create a model from the value."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return f"load it: models.transformers({str(value)!r})"
    if isinstance(value, (Vocabulary, Guide)):
        return "a vocabulary or a guide has no model; make a guide of it with guides.RegexGuide and its like"
    if isinstance(value, (tuple, list)):
        return "make one of it: models.transformers(model, tokenizer)"
    if hasattr(value, "config"):
        return "make one of it and its tokenizer: models.transformers(model, tokenizer)"
    return "make one with models.transformers, models.from_function or models.ziplm"
