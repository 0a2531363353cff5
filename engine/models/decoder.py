"""Decoder-only models of the transformers library, run from our own memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelError, OptionError
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BlockTable, Chunk
from ..memory.weights import kind_of
from ..sending.origin import Sendable
from .blocks.masks import AttentionMasks
from .blocks.padded import AlignedReader, EqualReader, PaddedReader, Reader, WholeReader
from .blocks.reach import Kind, layer_kinds
from .blocks.states import StateStorage
from .blocks.storage import BlockStorage
from .eos import eos_ids
from .generation_config import begin_of, forces_end, suppressed_of
from .head import Head, HeadedModel, find_head
from .nearness import check_numbers, distance, is_rounding, tolerance
from .no_memory import NoMemory
from .packed.decoder import DescribedDecoder
from .packed.runner import PackedRunner
from .protocol import Memory
from .quick.twin import Twin
from .rotary import unscaled_context
from .wrapped import entry_device, is_spread

_TEXT = [0, 1, 2, 3, 1, 0, 3]
_LONGER_TEXT = [*_TEXT, 2, 2, 0, 1]


class DecoderModel(HeadedModel, Sendable):
    """A model that `AutoModelForCausalLM` loads: of attention (full, sliding window or chunked), recurrent, or of both.

    cache: False computes every step from the whole text, which works for any decoder.
    state_bytes: what recurrent layers keep of a text
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
        self.device: torch.device = entry_device(model)
        self.weights_kind = kind_of(model)
        self._spread = is_spread(model)
        self.block_bytes = self.state_bytes = 0
        self.window: int | None = None
        self._body: Any = getattr(model, "model", model) if model.base_model is model else model.base_model
        self._cached = cache
        self._config = config
        self._layers: int = config.num_hidden_layers
        self._kinds = self._layer_kinds() if cache else []
        self._twin: Twin | None = None
        self._keeps_states = any(kind.states for kind in self._kinds)
        sizes = [kind.reach.longest for kind in self._kinds if kind.reach is not None]
        known = [size for size in sizes if size is not None]
        self.window = max(known) if known and len(known) == len(sizes) else None
        self._reader = self._probe()
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, self._width, eos_ids(model, tokenizer))
        self.suppressed = suppressed_of(model, self._width)
        self.forces_end = forces_end(model, tokenizer)
        self.begin_id = begin_of(model, self._width)

    def _layer_kinds(self) -> list[Kind]:
        names = inspect.signature(self._body.forward).parameters
        if "state" in names and not {"past_key_values", "cache_params"} & set(names):
            return [Kind(states=1)] * self._layers
        return layer_kinds(self._config)

    @torch.inference_mode()
    def _probe(self) -> Reader:
        """Run a few tokens, to learn the width of the logits and whether the head can be called apart.

        With a cache, also find a way to read the same tokens in two rows of different lengths: the first that gives
        the same logits.
        """
        text = _LONGER_TEXT if self._keeps_states else _TEXT
        ids = torch.tensor([text], device=self.device)
        logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0]
        check_numbers(self.model, logits)
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
        has_twin = hidden is not None and not self._spread and Twin.suits(self._body)
        twins = (Twin(self._body), None) if has_twin else (None,)
        for way in self._ways():
            for self._twin in twins:
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
        if self._keeps_states:
            yield from self._recurrent_ways()
            return
        described = None if self._head is None or self._spread else DescribedDecoder.of(body, self._config)
        if described is not None:
            yield lambda: PackedRunner(body, self._config, self._run, described)
        yield lambda: PackedRunner(body, self._config, self._run)
        takes_positions = "position_ids" in inspect.signature(body.forward).parameters
        # With windows under other names a model cuts them out by the number of columns, not by positions.
        if takes_positions and getattr(self._config, "attention_types", None) is None:
            implementation = self._config._attn_implementation
            yield lambda: PaddedReader(
                self.device, AttentionMasks(self._config, implementation, self.model.dtype), self._run
            )
        if self.window is None:  # else blocks are given up, and columns would be missing
            yield lambda: AlignedReader(self.device, takes_positions, self._run)
        yield lambda: EqualReader(self.device, takes_positions, self._run)

    def _recurrent_ways(self) -> Iterator[Callable[[], Reader]]:
        """The ways to run a model whose layers keep states, best first."""
        from .blocks.carriers import find_carrier  # for which transformers must have caches of states
        from .blocks.recurrent import RecurrentReader
        from .blocks.scans import Scans

        names = inspect.signature(self._body.forward).parameters
        name = next((name for name in ("past_key_values", "cache_params") if name in names), "state")
        carrier = find_carrier(self._body, self._kinds, name, torch.tensor([_TEXT[:2]] * 3, device=self.device))
        make = partial(
            RecurrentReader, self._kinds, self._run, carrier=carrier, device=self.device,
            takes_positions="position_ids" in names, scans=Scans(self._body, self.device),
        )  # fmt: skip
        attends = any(kind.reach is not None for kind in self._kinds)
        packed = PackedRunner(self._body, self._config, self._run) if attends else None
        for alone, continues in ((False, True), (False, False), (True, True), (True, False)):
            for attention in (packed, None) if attends else (None,):
                yield partial(make, packed=attention, continues=continues, alone=alone)

    def _is_right(self, reader: Reader, text: list[int], logits: Tensor) -> bool:
        """Read the text in two rows of different lengths, and compare with its logits."""
        storage = (StateStorage if self._keeps_states else BlockStorage)(2, self._layers)
        tables = [BlockTable(), BlockTable()]
        for number, table in enumerate(tables):
            table.blocks.append(1 - number)
            table.slot = 1 - number
        found: list[Tensor] = []
        expected: list[Tensor] = []
        # The second time the longer text is the one that is padded, where rows are padded. Where layers keep states a
        # text also goes on with a single token, which models do in another way.
        ends_of_both = ((1, 4), (5, 7), (6, 8), (8, 11)) if self._keeps_states else ((1, 4), (5, 7))
        if isinstance(reader, AlignedReader):
            ends_of_both = ((1, 4), (3, 6), (4, 7))
        for ends in ends_of_both:
            chunks = [Chunk(table, text[len(table.tokens) : end]) for table, end in zip(tables, ends, strict=True)]
            found.append(self.logits(reader.read(chunks, storage), [0, 1], None))
            expected.append(logits[[end - 1 for end in ends]].float())
            for table, tokens in chunks:
                table.tokens.extend(tokens)
        self.block_bytes = storage.bytes // 2
        self.state_bytes = storage.state_bytes if isinstance(storage, StateStorage) else 0
        far = max(distance(one, other) for one, other in zip(found, expected, strict=True))
        if self.block_bytes + self.state_bytes == 0:
            return False

        def anew() -> float:
            ids = torch.tensor([text], device=self.device)
            return distance(self.model(input_ids=ids, use_cache=False).logits[0], logits)

        return far <= tolerance(self.model, self.model.dtype) or is_rounding(far, self.model, anew)

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        return f"<DecoderModel {type(self.model).__name__}, {self._width:,} tokens{context}, on {self.device}>"

    def make_memory(self, blocks: int) -> BlockStorage | NoMemory:
        """Room for `blocks` blocks of keys and values, taken when the first is written, and for states as they come."""
        if not self._cached:
            return NoMemory()
        return (StateStorage if self._keeps_states else BlockStorage)(blocks, self._layers)

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Tensor:
        """Hidden states [chunks, size] of the last tokens; logits [chunks, V] if the head is not apart."""
        states = self._reader.read(chunks, memory)
        return states.to(self.device) if self._spread else states

    @property
    def reads_drafts(self) -> bool:
        """Whether the states of several tokens of a chunk can be had: in packed steps, where layers keep none."""
        return isinstance(self._reader, PackedRunner)

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Memory) -> Tensor:
        """Hidden states, as those of `forward`, [sum(ends), size] of the last tokens of each chunk, so many."""
        assert isinstance(self._reader, PackedRunner)
        return self._reader.read_ends(chunks, ends, memory)

    @property
    def parts(self) -> tuple[PackedRunner, Head] | None:
        """What reads packed steps, and the head, where they are apart, and on one device."""
        head, reader = None if self._spread else self._head, self._reader
        return (reader, head) if head is not None and isinstance(reader, PackedRunner) else None

    def _run(self, ids: Tensor, **arguments: Any) -> Tensor:
        if self._head is not None:
            if self._twin is None:
                return self._body(input_ids=ids, **arguments).last_hidden_state
            with torch.no_grad():  # kernels leave nothing behind that gradients could follow
                return self._twin.body(input_ids=ids, **arguments).last_hidden_state
        logits: Tensor = self.model(input_ids=ids, **arguments).logits
        if logits.shape[-1] != self._width:
            raise ModelError(f"the model returned {logits.shape[-1]} logits; it began with {self._width}")
        return logits
