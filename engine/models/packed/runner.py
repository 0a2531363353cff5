"""The runner of packed steps, by kernels for described decoders, or by a body's own modules with our attention."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import AttentionInterface

from ...memory.tables import Chunk
from ...memory.weights import NumberedLinks
from ..blocks.attention import ScoreOptions, attend
from ..blocks.reach import AttentionSpan, layer_kinds
from ..blocks.step import DeviceStep, PackedStep
from ..blocks.storage import BlockStorage, DeviceRows
from ..media.encoder import MediaEncoder
from ..modules import Modules
from ..stock import entry_device
from .decoder import DescribedDecoder
from .lora import LoraAdapters

_NAME = "trellm_blocks"
_HARMLESS = {"position_ids", "use_cache", "return_dict", "cache_position", "output_hidden_states", "logits_to_keep"}
_locks: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()


class NotPackedError(Exception):
    """Raised for an attention layer that needs more than packed steps provide."""


class PackedRunner:
    """A `Runner` of packed steps.

    modules: modules of the body, called with our function in transformers' attention interface
    described: decoder that runs in place of the modules, until the body changes
    adapters: LoRA adapters; sequences with an adapter run by the modules
    media: the image and audio parts of a multimodal model
    """

    def __init__(
        self,
        modules: Modules,
        config: Any,
        described: DescribedDecoder | None = None,
        adapters: LoraAdapters | None = None,
        media: MediaEncoder | None = None,
    ) -> None:
        self.described = described
        self.adapters = adapters
        self._media = media
        self._modules = modules
        self._config = config
        body = modules.body
        self._device = entry_device(body)
        self._reaches = [kind.reach or AttentionSpan() for kind in layer_kinds(config)]
        self._is_tuned: bool = bool(getattr(config, "attn_temperature_tuning", False))
        found = {id(each): each for module in body.modules() if (each := getattr(module, "config", None)) is not None}
        self._configs: list[dict[str, Any]] = [vars(each) for each in found.values()]
        self._lock = _locks.setdefault(body, RLock())
        self._parts = NumberedLinks(body)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy from the copied modules, with a lock of its own."""
        return type(self), (self._modules, self._config, self.described, self.adapters, self._media)

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """Return states [chunks, size] of the last tokens, or [sum(ends), size] of the last ends[i] of chunk i."""
        if self.adapters is not None:
            adapted = [chunk.table.source is not None for chunk in chunks]
            if any(adapted) and not all(adapted):
                return self._read_separately(chunks, storage, ends, adapted)
        states, step = self._read_tokens(chunks, storage)
        if ends is None:
            return states if len(states) == len(step.last) else states[step.last]
        if len(states) == sum(ends):
            return states
        return states[[place for last, count in zip(step.last, ends, strict=True)
                       for place in range(last - count + 1, last + 1)]]  # fmt: skip

    def _read_separately(
        self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None, adapted: Sequence[bool]
    ) -> Tensor:
        """Run `read` separately for sequences with and without adapters, so that they do not affect each other."""
        counts = [1] * len(chunks) if ends is None else ends
        found: list[Tensor] = [torch.empty(0)] * len(chunks)
        for kind in (False, True):
            places = [place for place, each in enumerate(adapted) if each is kind]
            chosen_ends = None if ends is None else [ends[place] for place in places]
            states = self.read([chunks[place] for place in places], storage, chosen_ends)
            parts: Sequence[Tensor] = torch.split(states, [counts[place] for place in places])
            for place, part in zip(places, parts, strict=True):
                found[place] = part
        return torch.cat(found)

    def _read_tokens(self, chunks: Sequence[Chunk], storage: Any) -> tuple[Tensor, PackedStep]:
        """Return states [tokens, size] of all tokens, in the order of the step."""
        step = self.step(chunks, storage)
        if self._media is None:
            ids, positions = torch.tensor([step.ids, step.positions], device=self._device)
            further: dict[str, Any] = {}
        else:
            read = self._media.inputs(chunks, step.ids, step.positions)
            ids = torch.tensor(step.ids, device=self._device) if read.states is None else read.states
            positions, step.mutual, further = read.positions, read.mutual, read.further
        if self.adapters is not None and chunks[0].table.source is not None:
            with self._lock, self.adapters.beside(chunks):
                return self._states(ids, positions, step, **further), step
        described = self._usable_decoder()
        if described is None:
            return self._states(ids, positions, step, **further), step
        return described.kernels.read(ids, positions, step), step

    def read_static(self, ids: Tensor, positions: Tensor, rows: DeviceRows, storage: BlockStorage) -> Tensor:
        """Return states [tokens, size] of a step on the device. A CUDA graph can capture it.

        ids, positions: int64 [tokens]; states of unused tokens are arbitrary
        storage: blocks that an earlier step has allocated
        """
        step, described = DeviceStep(storage.layers, self._reaches, rows), self._usable_decoder()
        if described is None:
            return self._states(ids, positions, step)
        return described.kernels.read(ids, positions, step)

    @property
    def baked(self) -> tuple[Any, ...]:
        """Key of all that a captured graph contains: addresses of weights, modules and adapters."""
        number = None if self.described is None else self.described.prepare()
        return self._parts.baked() if number is None else (number,)

    def _usable_decoder(self) -> DescribedDecoder | None:
        """Return the described decoder; None if there is none, or the body has changed."""
        return None if self.described is None or self.described.prepare() is None else self.described

    def step(self, chunks: Sequence[Chunk], storage: Any) -> PackedStep:
        """Return the attention metadata of chunks."""
        return PackedStep(chunks, storage, self._reaches, self._device)

    def _states(self, ids: Tensor, positions: Tensor, step: PackedStep | DeviceStep, **further: Any) -> Tensor:
        """Return states [tokens, size] of a step's tokens."""
        more: dict[str, Any] = {self._modules.cache_name: _Positions(positions)} if self._is_tuned else {}
        places = positions[..., None, :]
        return self.run(ids[None], step, position_ids=places, use_cache=False, **more, **further)[0]

    def run(self, ids: Tensor, step: PackedStep | DeviceStep, **arguments: Any) -> Tensor:
        """Return states [rows, width, size] of ids [rows, width], the tokens of the step's chunks in order.

        ids: int64, or embeddings [rows, width, size]
        """
        # The lock protects the model's configurations, which all threads share.
        with self._lock:
            before = [config["_attn_implementation_internal"] for config in self._configs]
            try:
                try:
                    for config in self._configs:
                        config["_attn_implementation_internal"] = _NAME
                    return self._modules(ids, attention_mask=None, trellm_step=step, **arguments)
                finally:
                    self._restore(before)
            except BaseException:
                self._restore(before)  # again, since Ctrl-C may have interrupted the first one
                raise

    def _restore(self, names: Sequence[Any]) -> None:
        """Restore the names of the attention functions in the configurations."""
        for config, name in zip(self._configs, names, strict=True):
            config["_attn_implementation_internal"] = name


class _Positions:
    """A substitute for a cache in layers that compute positions as token indices plus the cache's length."""

    def __init__(self, positions: Tensor) -> None:
        self._shift = positions - torch.arange(len(positions), device=positions.device)

    def get_seq_length(self, layer: int = 0) -> Tensor:
        """Return int64 [tokens]: positions minus indices in the step."""
        return self._shift

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the arguments: attention itself writes to the blocks."""
        return keys, values


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    trellm_step: PackedStep | DeviceStep | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Write keys and values to blocks, and return attention [rows, width, heads, size], for transformers' interface.

    query, key, value: [rows, heads, width, size]. Raises NotPackedError.
    """
    number: int | None = getattr(module, "layer_idx", None)
    if trellm_step is not None and trellm_step.turn is not None:
        number = trellm_step.turn
    if trellm_step is None or number is None:
        raise NotPackedError(f"{type(module).__name__} does not hand on what attention needs")
    reach = trellm_step.reaches[number]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = causal or trellm_step.mutual is not None
    if attention_mask is not None or dropout or not causal or sliding_window not in (None, reach.window):
        raise NotPackedError(f"{type(module).__name__} is not causal attention as its configuration says")
    strange = [
        name for name, option in others.items() if name not in _HARMLESS and option is not None and option is not False
    ]
    if strange:
        raise NotPackedError(f"{type(module).__name__} passes {', '.join(strange)} to its attention")
    rows, width = len(query), query.shape[2]
    new = (
        query.transpose(1, 2).flatten(0, 1),
        key.transpose(1, 2).flatten(0, 1),
        value.transpose(1, 2).flatten(0, 1),
    )
    layer = trellm_step.layers[number]
    trellm_step.write(layer, new[1], new[2])
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mixed = attend(trellm_step, layer, reach, new, ScoreOptions(scale, softcap, s_aux))
    return mixed.view(rows, width, *mixed.shape[1:]), None


_interface: Any = AttentionInterface
_interface.register(_NAME, _attention)
