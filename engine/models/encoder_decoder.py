"""Encoder-decoder models of transformers: the prompt is encoded once, the decoder writes the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from ...errors import OptionError
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BlockTable, Chunk
from ..memory.weights import kind_of
from ..sending import Sendable
from .blocks.storage import BlockStorage
from .body import ForwardPass, by_cut, ends_of, in_passes
from .caches import CacheLayer
from .generation_config import eos_ids, forces_end, suppressed_of
from .head import Head, HeadedModel, QuantizedHead, find_head
from .protocol import Memory
from .stock import cache_argument, entry_device
from .ways import check_numbers


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """An encoded prompt: keys and values [heads, length, head size] of each layer."""

    layers: list[tuple[Tensor, Tensor]]
    length: int

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


@dataclass(frozen=True)
class SourceInputs:
    """Decoder inputs for the sources of a pass's rows.

    view: cross-attention cache of all layers
    shape_only: [rows, length, 1], a substitute for the encoder's states, since the decoder only needs their shape
    mask: int64 [rows, length], 0 for padding; None if all lengths are equal
    """

    view: Cache
    shape_only: Tensor
    mask: Tensor | None


class SourceStorage(BlockStorage):
    """Blocks of the decoder's tokens, with a cache of `SourceInputs` of the last step."""

    def __init__(self, blocks: int, layers: int) -> None:
        super().__init__(blocks, layers)
        self._cached: list[tuple[list[EncodedSource], SourceInputs]] = []

    def inputs_of(self, groups: Sequence[list[EncodedSource]]) -> list[SourceInputs]:
        """Return the inputs of each pass's sources; for the same sources in a row those of the last step."""
        before = self._cached
        self._cached = [next((each for each in before if each[0] == sources), None) or (sources, _combine(sources))
                       for sources in groups]  # fmt: skip
        return [shown for _, shown in self._cached]


def _combine(sources: list[EncodedSource]) -> SourceInputs:
    count, longest = len(sources), max(source.length for source in sources)
    alone = all(source is sources[0] for source in sources)
    layers: list[Any] = []
    for number, (keys, values) in enumerate(sources[0].layers):
        if alone:
            layers.append(SourceLayer(*(part.expand(count, *part.shape) for part in (keys, values))))
        else:
            pairs = [source.layers[number] for source in sources]
            layers.append(SourceLayer(*(_stack(parts, longest) for parts in zip(*pairs, strict=True))))
    like = sources[0].layers[0][0]
    mask = None
    if any(source.length < longest for source in sources):
        lengths = torch.tensor([source.length for source in sources], device=like.device)
        mask = (torch.arange(longest, device=like.device) < lengths[:, None]).long()
    return SourceInputs(Cache(layers=layers), like.new_zeros(1, 1, 1).expand(count, longest, 1), mask)


class SourceLayer(CacheLayer):
    """Cross-attention keys and values of a pass's rows in one layer: [rows, heads, length, head size]."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys: Tensor | None = keys
        self.values: Tensor | None = values
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Raise AssertionError, since cross-attention does not update sources."""
        raise AssertionError("cross-attention was to use the keys and values that it has")

    def get_seq_length(self) -> int:
        """Return the length of the longest source."""
        return 0 if self.keys is None else self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and offset of the keys."""
        return self.get_seq_length(), 0


def _stack(parts: Sequence[Tensor], length: int) -> Tensor:
    """Stack tensors [heads, n, size] to [rows, heads, length, size], padded with zeros."""
    stacked = parts[0].new_zeros(len(parts), parts[0].shape[0], length, parts[0].shape[2])
    for row, part in zip(stacked, parts, strict=True):
        row[:, : part.shape[1]] = part
    return stacked


class EncoderDecoderModel(HeadedModel, Sendable):
    """A model that `AutoModelForSeq2SeqLM` loads, such as T5, BART, Marian.

    Outputs begin with `start_ids`, the decoder's start tokens. `BlockTable.source` is the encoded prompt.
    window: None, since all layers attend to all tokens
    text_prefix: b" " if the tokenizer puts a space before each text, which is not part of the output; otherwise b""
    """

    is_encoder_decoder = True
    state_bytes = 0
    window: int | None = None

    def __init__(self, model: Any, tokenizer: Any) -> None:
        model.eval()
        self.model = model
        self.tokenizer = tokenizer
        self.device: torch.device = entry_device(model)
        self.weights_kind = kind_of(model)
        config = model.config
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.source_context = self.context
        self.start_ids = _start_ids(model)
        self._encoder: Any = model.get_encoder()
        self._decoder: Any = model.get_decoder()
        self._cache_name = cache_argument(self._decoder)
        self._layers: int = getattr(config, "num_decoder_layers", None) or config.decoder_layers
        self.block_bytes = 0
        self._source_bytes = 0
        self._head = head = self._probe()
        self.sparse_head_limit = head.sparse_head_limit if self.device.type == "cpu" else 0
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, self._width, eos_ids(model, tokenizer))
        self.suppressed = suppressed_of(model, self._width)
        self.forces_end = forces_end(model, tokenizer)
        self.text_prefix = _text_prefix(tokenizer, self.vocabulary)

    @torch.inference_mode()
    def _probe(self) -> Head | QuantizedHead:
        """Run a few tokens to find the width of the logits, and the head. Set block and source bytes.

        The head must map states of the same tokens, read one by one with the cache, to the logits without a cache.
        Raises OptionError if it does not.
        """
        source, text = [0, 1, 2, 3], [*self.start_ids, 1, 2]
        ids = torch.tensor([text], device=self.device)
        expected: Tensor = self.model(
            input_ids=torch.tensor([source], device=self.device), decoder_input_ids=ids, use_cache=False
        ).logits[0]
        check_numbers(self.model, expected)
        self._width = expected.shape[-1]
        storage = self.make_memory(1)
        table = BlockTable(self.encode([source])[0])
        table.blocks.append(0)
        parts: list[Tensor] = []
        for token in text:
            parts.append(self.forward([Chunk(table, [token])], storage))
            table.tokens.append(token)
        self.block_bytes = storage.bytes
        self._source_bytes = table.source.bytes // len(source)
        head = find_head(self.model, torch.cat(parts), expected)
        if head is None:
            raise OptionError(
                f"{type(self.model).__name__} is not an encoder-decoder model that can be run: its logits do not "
                "follow from its decoder, head and cache as those of T5, BART and Marian do"
            )
        return head

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        return f"<EncoderDecoderModel {type(self.model).__name__}, {self._width:,} tokens{context}, on {self.device}>"

    def make_memory(self, blocks: int) -> SourceStorage:
        """Create memory of `blocks` blocks for the decoder's tokens."""
        return SourceStorage(blocks, self._layers)

    def source_bytes(self, length: int) -> int:
        """Return the bytes of a source of `length` tokens: keys and values of cross-attention."""
        return self._source_bytes * length

    def encode(self, sources: Sequence[Sequence[int]]) -> list[EncodedSource]:
        """Run the encoder, and return keys and values of cross-attention."""
        lengths = [len(source) for source in sources]
        longest = max(lengths)
        padded = [[*source, *[source[-1]] * (longest - len(source))] for source in sources]
        mask = torch.tensor([[1] * length + [0] * (longest - length) for length in lengths], device=self.device)
        states = self._encoder(input_ids=torch.tensor(padded, device=self.device), attention_mask=mask)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # The decoder's layers compute keys and values of the encoder's states with their first token, whatever its id.
        self._decoder(
            input_ids=torch.full((len(sources), 1), self.start_ids[0], device=self.device),
            encoder_hidden_states=states.last_hidden_state,
            encoder_attention_mask=mask,
            use_cache=True,
            **{self._cache_name: cache},
        )
        layers: list[Any] = cache.cross_attention_cache.layers

        def encoded(row: int, length: int) -> EncodedSource:
            several = [(layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in layers]
            return EncodedSource(several, length)

        return [encoded(row, length) for row, length in enumerate(lengths)]

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Tensor:
        """Return hidden states [chunks, size] of the last tokens. Texts with equal starts and widths run together."""
        assert isinstance(memory, SourceStorage)
        groups = by_cut(chunks)
        sources = iter(memory.inputs_of([[chunks[row].table.source for row in group] for group in groups]))
        return in_passes(chunks, groups, partial(self._read, memory, sources))

    def _read(
        self,
        storage: SourceStorage,
        sources: Iterator[SourceInputs],
        chunks: Sequence[Chunk],
        ends: Sequence[int] | None,
    ) -> Tensor:
        batch, source = ForwardPass(chunks, storage, self.device), next(sources)
        cache = EncoderDecoderCache(Cache(layers=batch.layers), source.view)
        cache.is_updated = dict.fromkeys(range(self._layers), True)
        states = self._decoder(
            input_ids=batch.ids,
            encoder_hidden_states=source.shape_only,
            encoder_attention_mask=source.mask,
            use_cache=True,
            **{self._cache_name: cache},
        )
        return ends_of(states.last_hidden_state, batch.widths, ends)


def _text_prefix(tokenizer: Any, vocabulary: Vocabulary) -> bytes:
    """Return b" " if the tokenizer puts a space before each text, tested with a word of the vocabulary; else b""."""
    word = next((token[1:] for token in vocabulary.tokens if token and token[:1] == b" " and token[1:].isalpha()), None)
    if word is None:
        return b""
    ids: list[int] = tokenizer.encode(word.decode(), add_special_tokens=False)
    return b" " if vocabulary.decode(ids).startswith(b" ") else b""


def _start_ids(model: Any) -> tuple[int, ...]:
    """Return the decoder's start token, and the forced BOS token, if any. Raises OptionError without a start token."""
    settings = [model.generation_config, model.config]
    found = [next((i for s in settings if (i := getattr(s, name, None)) is not None), None)
             for name in ("decoder_start_token_id", "bos_token_id", "forced_bos_token_id")]  # fmt: skip
    start = found[0] if found[0] is not None else found[1]
    if start is None:
        raise OptionError(
            f"{type(model).__name__} does not say which token its decoder starts from; set "
            "model.generation_config.decoder_start_token_id"
        )
    return (start,) if found[2] is None else (start, found[2])
