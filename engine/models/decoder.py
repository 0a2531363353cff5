"""Decoder-only models of the transformers library, run from our own memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelError, OptionError
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BlockTable, Chunk
from .blocks.masks import AttentionMasks
from .blocks.packed import PackedReader
from .blocks.padded import EqualReader, PaddedReader, Reader, WholeReader
from .blocks.reach import layer_reaches
from .blocks.storage import BlockStorage
from .eos import eos_ids
from .fused.reader import fused_reader
from .head import Head, find_head
from .no_memory import NoMemory
from .protocol import Memory
from .rotary import unscaled_context

_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""By how much of their spread logits may differ that are computed in two ways; some layers compute in float32."""


class DecoderModel:
    """A model that `AutoModelForCausalLM` loads, with ordinary attention (full, sliding window or chunked).

    cache: False computes every step from the whole text, which works for any decoder.
    context: the most tokens a text may have; where rotary embeddings are scaled by how long a text is, those up to
        which the scaling stays as it is, since rows of different lengths would need different ones
    """

    def __init__(self, model: Any, tokenizer: Any, *, cache: bool = True) -> None:
        if tokenizer is None:
            raise OptionError("a model object needs its tokenizer: models.transformers(model, tokenizer)")
        config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise OptionError(f"{type(model).__name__} is an encoder-decoder model, not a decoder-only one")
        model.eval()
        self.model = model
        self.tokenizer = tokenizer
        self.context: int | None = unscaled_context(config)
        self.device: torch.device = model.device
        self.block_bytes = 0
        self.window: int | None = None
        self._body: Any = getattr(model, "model", model) if model.base_model is model else model.base_model
        self._cached = cache
        self._config = config
        self._layers: int = config.num_hidden_layers
        if cache:
            sizes = [reach.longest for reach in layer_reaches(config)]
            known = [size for size in sizes if size is not None]
            self.window = max(known) if known and len(known) == len(sizes) else None
        self._reader = self._probe()
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, self._width, eos_ids(model, tokenizer))

    @torch.inference_mode()
    def _probe(self) -> Reader:
        """Run a few tokens, to learn the width of the logits and whether the head can be called apart.

        With a cache, also find a way to read the same tokens in two rows of different lengths: the first that gives
        the same logits.
        """
        text = [0, 1, 2, 3, 1, 0, 3]
        ids = torch.tensor([text], device=self.device)
        logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0]
        hidden: Any = getattr(self._body(input_ids=ids, use_cache=False), "last_hidden_state", None)
        self._width = logits.shape[-1]
        self._head = None if hidden is None else find_head(self.model, hidden[0], logits)
        # On an accelerator, several small launches cost more than one over all tokens.
        self.sparse_head_limit = (
            self._head.sparse_head_limit if self._head is not None and self.device.type == "cpu" else 0
        )
        if not self._cached:
            # Where attention chooses some of all columns, padding might be among them.
            singly = getattr(self._config, "index_topk", None) is not None
            return WholeReader(self.device, singly, self._run)
        causes: list[str] = []
        for way in self._ways():
            try:
                reader = way()
                if self._is_right(reader, text, logits):
                    return reader
                causes.append("other logits than without a cache")
            except Exception as error:  # architectures raise whatever they come upon
                causes.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise OptionError(
            f"{type(self.model).__name__} cannot be run from a cache ({causes[-1]:.300}); "
            "pass cache=False to run it, slowly, without a cache"
        )

    def _ways(self) -> Iterator[Callable[[], Reader]]:
        """The ways to run the model with a cache, best first."""
        body = self._body
        if self._head is not None and (fused := fused_reader(body, self._config, self._run)) is not None:
            yield lambda: fused
        yield lambda: PackedReader(body, self._config, self._run)
        takes_positions = "position_ids" in inspect.signature(body.forward).parameters
        # With windows under other names a model cuts them out by the number of columns, not by positions.
        if takes_positions and getattr(self._config, "attention_types", None) is None:
            implementation = self._config._attn_implementation
            yield lambda: PaddedReader(
                self.device, AttentionMasks(self._config, implementation, self.model.dtype), self._run
            )
        yield lambda: EqualReader(self.device, takes_positions, self._run)

    def _is_right(self, reader: Reader, text: list[int], logits: Tensor) -> bool:
        """Read the text in two rows of different lengths, and compare with its logits."""
        storage = BlockStorage(2, self._layers)
        tables = [BlockTable(), BlockTable()]
        for number, table in enumerate(tables):
            table.blocks.append(1 - number)
        # The second time the longer text is the one that is padded, where rows are padded.
        for ends in ((1, 4), (5, 7)):
            chunks = [Chunk(table, text[len(table.tokens) : end]) for table, end in zip(tables, ends, strict=True)]
            states = reader.read(chunks, storage)
            for table, tokens in chunks:
                table.tokens.extend(tokens)
        found = self.logits(states, [0, 1], None)
        self.block_bytes = storage.bytes // 2
        expected = logits[[4, 6]].float()
        spread = (expected - expected.mean(-1, keepdim=True)).square().sum().sqrt().item()
        far = (found - expected).square().sum().sqrt().item()
        return self.block_bytes > 0 and far <= _TOLERANCES.get(logits.dtype, 5e-2) * spread

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        return f"<DecoderModel {type(self.model).__name__}, {self._width:,} tokens{context}, on {self.device}>"

    def make_memory(self, blocks: int) -> BlockStorage | NoMemory:
        """Room for `blocks` blocks of keys and values, taken when the first is written."""
        return BlockStorage(blocks, self._layers) if self._cached else NoMemory()

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Tensor:
        """Hidden states [chunks, size] of the last tokens; logits [chunks, V] if the head is not apart."""
        return self._reader.read(chunks, memory)

    def logits(self, hidden: Tensor, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Logits of the next token: float32 [len(rows), V] or [len(rows), len(ids)]."""
        chosen = hidden if len(rows) == len(hidden) and list(rows) == list(range(len(rows))) else hidden[list(rows)]
        if self._head is not None:
            return self._head(chosen, ids)
        return chosen.float() if ids is None else chosen.index_select(1, ids).float()

    @property
    def parts(self) -> tuple[PackedReader, Head] | None:
        """What reads packed steps, and the head, where they are apart."""
        head, reader = self._head, self._reader
        return (reader, head) if head is not None and isinstance(reader, PackedReader) else None

    def _run(self, ids: Tensor, **arguments: Any) -> Tensor:
        if self._head is not None:
            return self._body(input_ids=ids, **arguments).last_hidden_state
        logits: Tensor = self.model(input_ids=ids, **arguments).logits
        if logits.shape[-1] != self._width:
            raise ModelError(f"the model returned {logits.shape[-1]} logits; it began with {self._width}")
        return logits
