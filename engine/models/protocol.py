"""Protocols of models, as the decode loop knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from ...checks import shown
from ...errors import OptionError
from ...guides.protocol import Guide
from ...tokenizers_adapter import Vocabulary
from ..media import Media
from ..memory.tables import Chunk

Hidden = Any
BEGIN = -1
"""The `begin_id` of a model that can begin a text without any token: it is read in place of an empty prompt.

A model may have a `begin_id`: that, or the id of the token that it reads in place of an empty prompt where its
tokenizer names none (`bos_token_id`); None if there is none. One whose `forces_end` is True has EOS as the last token
of a free text's budget.
"""


def words_behind(ids: Sequence[int]) -> Sequence[int]:
    """The tokens behind the last image or audio of a prompt; all where it has none."""
    if not ids or min(ids) >= BEGIN:
        return ids
    return ids[next(place for place in range(len(ids), 0, -1) if ids[place - 1] < BEGIN) :]


MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)
"""Errors of a model without memory for a step; the step is taken again with fewer sequences."""


class Tokenizer(Protocol):
    """Turns prompts into token ids."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with whatever the model expects before it."""
        ...


class Memory(Protocol):
    """Keys and values of a model's tokens, in blocks of BLOCK tokens, and the states of texts in slots."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, in all layers and all at once: each pair is (from, to)."""
        ...

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy states of texts, all at once: each pair is (from slot, to slot). Only where `state_bytes` is above 0."""
        ...


class Runner(Protocol):
    """Runs a decoder over chunks: packed (packed/), with states (states/), or by transformers' attention (body/)."""

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """The states [chunks, size] of the last tokens; with ends [sum(ends), size], so many of each chunk."""
        ...


class Model(Protocol):
    """A language model; `forward` reads tokens, `logits` says what may come next.

    The two are apart so that a step may ask for the logits of a few tokens only. The loop calls them under
    `torch.inference_mode`.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """The bytes of every token; `vocabulary.size` is the width of the logits."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder of prompts."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens a text may have, None without limit."""
        ...

    @property
    def sparse_head_limit(self) -> int:
        """Up to how many tokens `logits` is cheaper for those tokens than for all; 0 if never."""
        ...

    @property
    def block_bytes(self) -> int:
        """Keys and values of one block in all layers; 0 for a model that remembers nothing but token ids."""
        ...

    @property
    def state_bytes(self) -> int:
        """Bytes of a text's state beside its keys and values, however long it is; 0 if none."""
        ...

    @property
    def window(self) -> int | None:
        """No layer looks further back than so many tokens, the token itself counted; None if one looks at all."""
        ...

    def make_memory(self, blocks: int) -> Memory:
        """Room for `blocks` blocks, and for the states of as many texts as read."""
        ...

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Hidden:
        """Read what each chunk adds to its text; returns what `logits` needs about the last token of each.

        Keys and values go into the blocks of the chunks' tables, which have room for them, and states into their
        slots, which are theirs alone; the tables stay as they are. Blocks may be shared, and a chunk may look at blocks
        that others of the same call fill, provided that these lie before its own first token.
        """
        ...

    def logits(self, hidden: Hidden, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Logits of the token that follows: float32 [len(rows), V], or [len(rows), len(ids)] for int64 `ids`.

        `rows` index the entries of `hidden`. Raises ModelError for a wrong shape.
        """
        ...


@runtime_checkable
class ScoringModel(Model, Protocol):
    """A model that can say what follows each of the last tokens of a chunk."""

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Memory) -> Hidden:
        """As `forward`, with what `logits` needs about the last `ends[i]` tokens of chunk i, in their order."""
        ...


@runtime_checkable
class DraftedModel(ScoringModel, Protocol):
    """A model that can read other tokens in the places of the last ones later.

    It keeps nothing of a text beside its keys and values.
    """

    @property
    def reads_drafts(self) -> bool:
        """True if it can, as it is."""
        ...


@runtime_checkable
class PoolingModel(Model, Protocol):
    """A model whose final hidden states can be had, those that its head makes logits of."""

    @property
    def embedding_size(self) -> int:
        """The length of one; 0 where they cannot be had from the model as it is."""
        ...

    def pool(self, hidden: Hidden, rows: Sequence[int]) -> Tensor:
        """Those of some entries of `hidden`: float32 [len(rows), embedding_size]."""
        ...


class ReadMedia(NamedTuple):
    """A prompt with images or audio: its ids, and what has to be held for as long as these are used."""

    ids: tuple[int, ...]
    held: tuple[Any, ...]


class MediaPart(Protocol):
    """The parts of a model that read images and audio. Ids of rows are below BEGIN, and the same for equal ones."""

    @property
    def marks(self) -> Mapping[str, str]:
        """Placeholders in a text, by the kinds that are read, "image" and "audio"."""
        ...

    @property
    def has_template(self) -> bool:
        """True if chats can be rendered."""
        ...

    @property
    def joins_prompts(self) -> bool:
        """True if all tokens of a prompt look at one another, so that prompts without images are not read."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of images, audio and features that are kept."""
        ...

    def read(self, text: str, media: Sequence[Media], what: str) -> ReadMedia:
        """The ids of a text with a mark for each image or audio. what: names the prompt, as the beginning of a sentence

        Raises OptionError.
        """
        ...

    def expanded(self, text: str, media: Sequence[Media], what: str) -> tuple[str, tuple[Any, ...]]:
        """A text in which the places of rows stand for the marks of their contents, and what the rows are of.

        Raises OptionError where the text has not as many marks as there are images and audio.
        """
        ...

    def beginning(self, text: str) -> list[int]:
        """The tokens that the tokenizer puts before a text."""
        ...

    def placed(self, ids: Sequence[int], held: Sequence[Any], what: str) -> ReadMedia:
        """The ids of an expanded text, with those of rows in their places. Raises OptionError."""
        ...

    def held(self, ids: Sequence[int], media: Sequence[Media]) -> tuple[Any, ...]:
        """Contents to be held for as long as ids are used that were made of a prompt with these images and audio.

        Raises OptionError for ids of rows of which nobody knows what they are of.
        """
        ...

    def whole(self, pending: Sequence[int], count: int) -> int:
        """Count of tokens to read at once where `count` were to be, so that none are parted that are read together."""
        ...

    def prepare(self, ids: Sequence[int]) -> None:
        """Compute the features whose rows are among some ids, where they are not there. Raises what the part raises."""
        ...

    def forget(self) -> None:
        """Let features go; they are computed again where they are needed."""
        ...


@runtime_checkable
class MediaModel(Model, Protocol):
    """A model that may have parts which read images and audio."""

    @property
    def media(self) -> MediaPart | None:
        """Parts that read images and audio; None for a model without any."""
        ...


class ListingModel(Model, Protocol):
    """A model that computes the logits of a few tokens of several texts at once, of each text its own."""

    def logits_listed(self, hidden: Hidden, rows: Sequence[int], several: Sequence[Tensor]) -> Tensor | None:
        """As `logits`, for int64 tokens of each row: float32 [len(rows), most], anything behind as many as a row has.

        None where `logits`, asked row by row, is as quick.
        """
        ...


@runtime_checkable
class SourceModel(Model, Protocol):
    """A model that reads the prompt, its source, apart from the output: encoder and decoder."""

    @property
    def start_ids(self) -> tuple[int, ...]:
        """The tokens that the decoder starts from; every text begins with them."""
        ...

    @property
    def source_context(self) -> int | None:
        """The most tokens a source may have, None without limit."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """The beginning of every output that is not a part of it: a space, or nothing."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Any]:
        """Read sources; for each what goes into `BlockTable.source` of all its texts."""
        ...

    def source_bytes(self, length: int) -> int:
        """Bytes of a source of so many tokens."""
        ...


def media_of(model: Model) -> MediaPart | None:
    """The parts of a model that read images and audio; None where there are none."""
    return model.media if isinstance(model, MediaModel) else None


def kinds_read(model: Model) -> tuple[str, ...]:
    """Kinds of content that a model reads beside texts: "image", "audio"."""
    media = media_of(model)
    return () if media is None else tuple(media.marks)


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
    """True if it has what the decode loop asks of a model."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in _OF_MODELS)


def check_model(model: Any, call: str, *others: Any) -> None:
    """Raise OptionError for what is no model. call: what got it; others: its other arguments: one may be the model."""
    if is_model(model):
        return
    if any(is_model(other) for other in others):
        raise OptionError(f"{call}: the model comes first, before {shown(model)}; swap the two")
    raise OptionError(f"{call}: the first argument must be a model of trellm, not {shown(model)}; {_to_model(model)}")


def check_guide(guide: object) -> None:
    """Raise OptionError for what is neither a guide nor None."""
    if guide is None or (not isinstance(guide, type) and all(hasattr(guide, name) for name in _OF_GUIDES)):
        return
    raise OptionError(
        f"guide={shown(guide)}: a guide such as guides.RegexGuide(pattern, model.vocabulary), or None for free text; "
        "generate.regex, generate.json and the others make it themselves"
    )


def _to_model(value: Any) -> str:
    """Advice on how a model is made of what was passed in its place."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return f"load it: models.transformers({str(value)!r})"
    if isinstance(value, (Vocabulary, Guide)):
        return "a vocabulary or a guide has no model; make a guide of it with guides.RegexGuide and its like"
    if isinstance(value, (tuple, list)):
        return "make one of it: models.transformers(model, tokenizer)"
    if hasattr(value, "config"):
        return "make one of it and its tokenizer: models.transformers(model, tokenizer)"
    return "make one with models.transformers, models.from_function or models.ziplm"
