"""Decoder-only models of transformers, with our own KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import OptionError
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BlockTable, Chunk
from ..memory.weights import kind_of
from ..sending import Sendable
from .blocks.reach import LayerMemory, layer_kinds, unscaled_context
from .blocks.storage import BlockStorage
from .body import AttentionMasks, BodyRunner
from .caches import find_carrier
from .generation_config import answers_bare, begin_of, eos_ids, forces_end, suppressed_of
from .head import Head, HeadedModel, QuantizedHead, described_head, find_head, states_of
from .media.encoder import MediaEncoder, kinds_read
from .media.families import family_of
from .media.processing import is_processor
from .modules import Modules
from .packed.decoder import DescribedDecoder
from .packed.lora import LoraAdapters
from .packed.runner import PackedRunner
from .protocol import Memory, Runner
from .stock import cache_argument, entry_device, is_spread
from .ways import Way, check_numbers, distance, is_rounding, is_to_be_verified, tolerance, way_of

_TEXT = [0, 1, 2, 3, 1, 0, 3]
_LONGER_TEXT = [*_TEXT, 2, 2, 0, 1]


class DecoderModel(HeadedModel, Sendable):
    """A model that `AutoModelForCausalLM` loads, or a decoder with image and audio parts.

    Supported layers have attention (full, sliding-window or chunked), recurrent states, or both.
    tokenizer: the processor of a multimodal model; with a tokenizer, such a model reads texts only
    media: the image and audio parts; None if there are none
    cache: False computes every step from the whole text, which works for any decoder
    kv_cache_dtype: "float16" or "int8" stores the KV cache in that type, for float32 on a CPU; "auto" in the model's
        dtype
    adapters: LoRA adapters by name, as folders or names on the Hub; a request chooses one. The attribute has the names
    state_bytes: bytes of a sequence's recurrent states
    embedding_size: size of final hidden states; 0 without a separate head, if `forward` returns logits
    context: greatest length of a text in tokens. If rotary scaling depends on the length, the greatest length with the
        initial scaling, since all rows of a pass share one scaling
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        cache: bool = True,
        kv_cache_dtype: str = "auto",
        adapters: Mapping[str, str] | None = None,
    ) -> None:
        config = model.config.get_text_config()
        family = family_of(model.config)
        model.eval()
        self.model = model
        self.context: int | None = unscaled_context(config)
        self.device: torch.device = entry_device(model)
        self.weights_kind = kind_of(model)
        self._is_spread = is_spread(model)
        self.block_bytes = self.state_bytes = 0
        self.window: int | None = None
        self._body: Any = getattr(model, "model", model) if model.base_model is model else model.base_model
        self._decoder: Any = model
        self.media: MediaEncoder | None = None
        if family is not None:
            self._decoder = self._body = model.get_decoder()
            if is_processor(tokenizer):
                if not cache:
                    raise OptionError(
                        f"cache=False: {type(model).__name__} runs with a cache where it reads more than texts; leave "
                        "the option out, or give its tokenizer in place of its processor"
                    )
                self.media = MediaEncoder(model, self._body, tokenizer, family)
                tokenizer = self.media.processing.tokenizer
        self.tokenizer = tokenizer
        self._has_cache = cache
        self._config = config
        self._layers: int = config.num_hidden_layers if cache else 0
        self._kinds = self._layer_kinds() if cache else []
        self.adapters: tuple[str, ...] = tuple(adapters or ())
        self._has_states = any(kind.states for kind in self._kinds)
        sizes = [kind.reach.longest for kind in self._kinds if kind.reach is not None]
        bounded = [size for size in sizes if size is not None]
        self.window = max(bounded) if bounded and len(bounded) == len(sizes) else None
        self._kv_dtype: torch.dtype | None = None  # `_probe` compares logits with the KV cache in the model's dtype
        self._runner = self._probe()
        if kv_cache_dtype != "auto":
            self._store_in(kv_cache_dtype)
        if adapters:
            self._take_adapters(adapters)
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, self._width, eos_ids(model, tokenizer))
        self.suppressed = suppressed_of(model, self._width)
        self.forces_end = forces_end(model, tokenizer)
        self.begin_id = begin_of(model, self._width)
        self.answers_bare = answers_bare(model)

    def _layer_kinds(self) -> list[LayerMemory]:
        if cache_argument(self._body) == "state":
            return [LayerMemory(states=1)] * self._layers
        return layer_kinds(self._config)

    @torch.inference_mode()
    def _probe(self) -> Runner:
        """Determine the width of the logits, the head, and the way to run the body.

        A described decoder is recognised by its structure; other models run a few tokens by their own code.
        """
        described = self._describe()
        is_tried = is_to_be_verified() or self._decoder is not self.model
        known_head = None if described is None or is_tried else described_head(self.model, self._body)
        if described is not None and known_head is not None:
            return self._described_runner(described, known_head)
        text = _LONGER_TEXT if self._has_states else _TEXT
        ids = torch.tensor([text], device=self.device)
        found: list[Any] = []

        def keep(body: Any, arguments: Any, states: Any) -> None:
            found.append(states)

        hook = self._body.register_forward_hook(keep)
        try:
            logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0]
        finally:
            hook.remove()
        check_numbers(self.model, logits)
        hidden: Any = getattr(found[-1], "last_hidden_state", None) if found else None
        head = None if hidden is None else find_head(self.model, hidden[0], logits)
        described = None if head is None else described
        self._take_head(head, logits.shape[-1], 0 if hidden is None else hidden.shape[-1], described)
        if self.media is not None and head is None:
            raise OptionError(
                f"{type(self.model).__name__} has a head that is not known; give its tokenizer in place of its "
                "processor, to read texts alone"
            )
        if self._has_cache:
            return self._choose_runner(text, logits, described)
        # Attention to the top-k columns (`index_topk`) might select padding.
        self._way = Way("whole", alone=getattr(self._config, "index_topk", None) is not None)
        return self._make_runner(self._way)

    def _take_head(
        self, head: Head | QuantizedHead | None, width: int, hidden: int, described: DescribedDecoder | None
    ) -> None:
        self._head, self._width = head, width
        # LoRA adapters hook the body's own modules, not those of a copy.
        is_quick = self._has_cache and head is not None and described is None and not (self._is_spread or self.adapters)
        self._modules = Modules(self._body, None if head is not None else self.model, width, is_quick=is_quick)
        self.embedding_size: int = 0 if head is None else hidden
        # On an accelerator, several small launches take longer than one product with all tokens.
        self.sparse_head_limit = head.sparse_head_limit if head is not None and self.device.type == "cpu" else 0

    def _described_runner(self, described: DescribedDecoder, head: Head | QuantizedHead) -> Runner:
        """Return the runner of a described model. Raises ModelError for weights that are not finite."""
        self._take_head(head, self.model.get_output_embeddings().out_features, described.description.hidden, described)
        self._way = Way("packed")
        runner = self._make_runner(self._way, described)
        check_numbers(self.model, head(self._measure(runner, _TEXT), None))
        return runner

    def _choose_runner(self, text: list[int], logits: Tensor, described: DescribedDecoder | None) -> Runner:
        """Return the runner with a cache of the architecture's known way, or else of the first way with equal logits.

        Ways are known for described bodies, and for stock modules of transformers with verified architecture and
        options. If none is known, or it raises an error, each way reads a few tokens in two rows of different lengths,
        and its logits are compared with those of the whole text. Raises OptionError if no way passes.
        """
        known_way = Way("packed") if described is not None else way_of(self._decoder)
        trusted = None if is_to_be_verified() else known_way
        causes: list[str] = []
        for way in (*([] if known_way is None else [known_way]), *self._ways()):
            self._way = way
            try:
                runner = self._make_runner(way, described)
                if way is trusted:
                    self._measure(runner, text[:2])
                    return runner
                if self._matches_logits(runner, text, logits):
                    return runner
                causes.append("other logits than without a cache")
            except Exception as error:  # architectures raise various exceptions
                causes.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise OptionError(
            f"{type(self.model).__name__} cannot be run from a cache ({causes[-1]:.300}); "
            "pass cache=False to run it, slowly, without a cache"
        )

    def _describe(self) -> DescribedDecoder | None:
        suits = self._has_cache and not self._is_spread and not self._has_states
        return DescribedDecoder.of(self._body, self._config) if suits else None

    def _ways(self) -> Iterator[Way]:
        """Yield ways for a model of unknown architecture, best first."""
        if self._has_states:
            attends = any(kind.reach is not None for kind in self._kinds)
            for alone, continues in ((False, True), (False, False), (True, True), (True, False)):
                for blocks in (True, False) if attends else (False,):
                    yield Way("states", blocks, continues, alone)
            return
        yield Way("packed")
        if self.media is not None:
            return
        # Models with `attention_types` (GPT-Neo) apply windows to columns, not to positions.
        if self._modules.takes_positions and getattr(self._config, "attention_types", None) is None:
            yield Way("padded")
        if self.window is None:  # with a window, blocks are freed, and their columns would be missing
            yield Way("aligned")
        yield Way("equal")

    def _make_runner(self, way: Way, described: DescribedDecoder | None = None) -> Runner:
        """Return the runner of a way."""
        modules, kinds = self._modules, self._kinds
        if way.rows == "packed":
            return PackedRunner(modules, self._config, described, media=self.media)
        few = torch.tensor([_TEXT[:2]] * 3, device=self.device)
        carrier = find_carrier(modules.network, kinds, modules.cache_name, few)
        attends = way.rows == "states" and way.blocks and any(kind.reach is not None for kind in kinds)
        packed, masks = PackedRunner(modules, self._config) if attends else None, None
        if way.rows == "padded":
            masks = AttentionMasks(self._config, self._config._attn_implementation, self.model.dtype)
        return BodyRunner(modules, way, self.device, kinds, carrier, packed, masks)

    def _store_in(self, name: str) -> None:
        """Store the KV cache in another dtype. Raises OptionError if no kernel supports it."""
        kind, what = self.model.dtype, f"kv_cache_dtype={name!r}: {type(self.model).__name__}"
        dtype, place = str(kind).removeprefix("torch."), "several devices" if self._is_spread else self.device
        if not self._has_cache:
            raise OptionError(f"{what} keeps nothing with cache=False; leave one of the two options out")
        if name == "float16" and kind in (torch.float16, torch.bfloat16):
            raise OptionError(f"{what} is in {dtype}, and so are its keys and values, in 16 bits; leave the option out")
        if self._is_spread or (self.device.type, kind) != ("cpu", torch.float32):
            raise OptionError(
                f"{what} is in {dtype} on {place}, and the option is for models in float32 on a CPU; leave it out, or "
                "on a GPU give dtype='bfloat16', with which keys and values have 16 bits too"
            )
        if not self.block_bytes:
            raise OptionError(f"{what} keeps states of a fixed size and no keys and values; leave the option out")
        if self._way.rows != "packed" and not (self._way.rows == "states" and self._way.blocks):
            raise OptionError(
                f"{what} has attention of its own, which reads keys and values in the type of the model; leave the "
                "option out"
            )
        self._kv_dtype = getattr(torch, name)
        with torch.inference_mode():
            self._measure(self._runner, _TEXT[:2])

    @torch.inference_mode()
    def _take_adapters(self, adapters: Mapping[str, str]) -> None:
        """Load LoRA adapters for texts. Raises OptionError."""
        if not isinstance(self._runner, PackedRunner) or self._is_spread:
            raise OptionError(
                f"adapters=: {type(self.model).__name__} is no decoder of attention over blocks on one device, which "
                "adapters by name need; give one of them as adapter="
            )
        self._runner.adapters = LoraAdapters(self.model, self._body, adapters)
        for number in range(len(adapters)):
            self._measure(self._runner, _TEXT, number + 1)

    def _measure(self, runner: Runner, text: list[int], source: int | None = None) -> Tensor:
        """Read a text to set `block_bytes` and `state_bytes`. Return the last token's state [1, size], or logits."""
        storage, table = self.make_memory(1), BlockTable(source)
        table.blocks.append(0)
        table.slot = 0
        states = runner.read([Chunk(table, text)], storage)
        self.block_bytes = storage.bytes
        self.state_bytes = storage.state_bytes
        return states

    def _matches_logits(self, runner: Runner, text: list[int], logits: Tensor) -> bool:
        """Test whether a runner that reads the text in two rows of different lengths returns the same logits."""
        if self.media is not None and self.media.joins_prompts:
            return self._matches_joined_logits(runner, text)
        storage = self.make_memory(2)
        tables = [BlockTable(), BlockTable()]
        for number, table in enumerate(tables):
            table.blocks.append(1 - number)
            table.slot = 1 - number
        found: list[Tensor] = []
        expected: list[Tensor] = []
        # In padded rows, the first pass pads the shorter text, and the second the longer one. With recurrent layers a
        # text also continues with a single token, which models compute differently.
        ends_of_both = ((1, 4), (5, 7), (6, 8), (8, 11)) if self._has_states else ((1, 4), (5, 7))
        if self._way.rows == "aligned":
            ends_of_both = ((1, 4), (3, 6), (4, 7))
        for ends in ends_of_both:
            chunks = [Chunk(table, text[len(table.tokens) : end]) for table, end in zip(tables, ends, strict=True)]
            found.append(self.logits(runner.read(chunks, storage), [0, 1], None))
            expected.append(logits[[end - 1 for end in ends]].float())
            for table, tokens in chunks:
                table.tokens.extend(tokens)
        self.block_bytes = storage.bytes // 2
        self.state_bytes = storage.state_bytes
        far = max(distance(one, other) for one, other in zip(found, expected, strict=True))
        if self.block_bytes + self.state_bytes == 0:
            return False

        def recompute() -> float:
            ids = torch.tensor([text], device=self.device)
            return distance(self.model(input_ids=ids, use_cache=False).logits[0], logits)

        return far <= tolerance(self.model, self.model.dtype) or is_rounding(far, self.model, recompute)

    def _matches_joined_logits(self, runner: Runner, text: list[int]) -> bool:
        """Test whether a runner returns the same logits, for models with bidirectional attention in prompts."""
        assert self.media is not None
        ids, storage, table = torch.tensor([text], device=self.device), self.make_memory(1), BlockTable()
        table.blocks.append(0)
        rows, _held = self.media.joined(tuple(text), ())
        found = self.logits(runner.read([Chunk(table, rows)], storage), [0], None)
        expected = self.model(input_ids=ids, token_type_ids=torch.zeros_like(ids), use_cache=False).logits[0, -1:]
        self.block_bytes = storage.bytes
        return distance(found, expected.float()) <= tolerance(self.model, self.model.dtype)

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        return f"<DecoderModel {type(self.model).__name__}, {self._width:,} tokens{context}, on {self.device}>"

    def make_memory(self, blocks: int) -> BlockStorage:
        """Create memory of `blocks` blocks, and of states. It is allocated on first use."""
        return BlockStorage(blocks, self._layers, self._kv_dtype)

    def forward(self, chunks: Sequence[Chunk], memory: Memory) -> Tensor:
        """Return hidden states [chunks, size] of the last tokens; logits [chunks, V] without a separate head."""
        return self._read(chunks, memory, None)

    @property
    def reads_drafts(self) -> bool:
        """True if tokens can be overwritten: in packed steps, without recurrent layers."""
        return isinstance(self._runner, PackedRunner)

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Memory) -> Tensor:
        """Return hidden states [sum(ends), size] of the last ends[i] tokens of chunk i."""
        return self._read(chunks, memory, ends)

    def _read(self, chunks: Sequence[Chunk], memory: Memory, ends: Sequence[int] | None) -> Tensor:
        self._modules.refresh()
        states = self._runner.read(chunks, memory, ends)
        return states.to(self.device) if self._is_spread else states

    def pool(self, hidden: Tensor, rows: Sequence[int]) -> Tensor:
        """Return final hidden states, after the last norm: float32 [len(rows), embedding_size]."""
        return states_of(hidden, rows).float()

    @property
    def reads_images(self) -> bool:
        """True for a model with an image part, wrapped with its processor."""
        return "image" in kinds_read(self)

    @property
    def reads_audio(self) -> bool:
        """True for a model with an audio part, wrapped with its processor."""
        return "audio" in kinds_read(self)

    @property
    def parts(self) -> tuple[PackedRunner, Head] | None:
        """The runner of packed steps and the head, if separate, on one device, and not quantized.

        None if positions do not follow from indices alone, as after images of some models.
        """
        is_plain = self.media is None or self.media.has_plain_positions
        self._modules.refresh()
        head, runner = self._head if is_plain and not self._is_spread else None, self._runner
        return (runner, head) if isinstance(head, Head) and isinstance(runner, PackedRunner) else None
