"""LoRA adapters beside a decoder's weights, so that one batch may use several.

The sequence's adapter adds (x A) B to a layer's output x W (Hu et al., arXiv:2106.09685). All adapters of a step form
one product; a mask zeroes x A for the adapters of other sequences (as in Punica, arXiv:2310.18547, without custom
kernels).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ....checks import brief
from ....errors import OptionError
from ...memory.tables import Chunk
from ..quantized.modules import QuantizedLinear

FILES = ("adapter_config.json", "adapter_model.safetensors")
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_REFUSED = (
    *("modules_to_save", "trainable_token_indices", "use_dora", "lora_bias", "use_qalora", "layer_replication"),
    *("alora_invocation_tokens", "use_bdlora", "kasa_config", "arrow_config", "monteclora_config"),
)
"""PEFT options that add more than low-rank products. Adapters with one of them are refused."""
_CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Prefixes of PEFT's initialisations that also change the base weights."""


class LoraLayer(NamedTuple):
    """A [adapters * rank, in] and B [adapters * rank, out] of one layer, scaled; 0 for adapters without it."""

    a: Tensor
    b: Tensor


class _Tokens(NamedTuple):
    """Adapters of a step's tokens.

    rows: rows of A and B of the adapters in use; None for all
    mask: 0/1 mask [tokens, rows]; None if all tokens use the same adapter
    """

    rows: Tensor | None
    mask: Tensor | None


class LoraAdapters:
    """LoRA adapters of a model, numbered from 1; `BlockTable.source` has the number of a sequence's adapter.

    body: the module that contains all adapted layers
    places: folders or names on the Hub by adapter name
    Raises OptionError for an adapter that does not fit.
    """

    def __init__(self, model: Any, body: Any, places: Mapping[str, str]) -> None:
        self.names = tuple(places)
        inside = set(body.modules())
        linear = {name: module for name, module in model.named_modules() if module in inside}
        found = [_read(name, place, linear) for name, place in places.items()]
        self._rank = max(a.shape[0] for pairs in found for a, _ in pairs.values())
        used = dict.fromkeys(name for pairs in found for name in pairs)
        self._layers = [
            (linear[name], self._stack(linear[name], [pairs.get(name) for pairs in found])) for name in used
        ]
        self._tokens = _Tokens(None, None)

    @contextmanager
    def beside(self, chunks: Sequence[Chunk]) -> Generator[None]:
        """Return a context manager, in which the body's modules add the adapters of the chunks' sequences."""
        self._tokens = self._tokens_of(chunks)
        hooks: list[Any] = []
        try:
            hooks += [module.register_forward_hook(self._hook(layer)) for module, layer in self._layers]
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _stack(self, module: Any, pairs: Sequence[tuple[Tensor, Tensor] | None]) -> LoraLayer:
        size_in, size_out = _sizes(module)
        weight: Tensor = module.weight
        dtype = weight.dtype if weight.is_floating_point() else torch.float32
        a, b = torch.zeros(len(pairs), self._rank, size_in), torch.zeros(len(pairs), self._rank, size_out)
        for number, pair in enumerate(pairs):
            if pair is not None:
                rank = len(pair[0])
                a[number, :rank], b[number, :rank] = pair[0], pair[1].T
        return LoraLayer(a.flatten(0, 1).to(weight.device, dtype), b.flatten(0, 1).to(weight.device, dtype))

    def _tokens_of(self, chunks: Sequence[Chunk]) -> _Tokens:
        numbers: list[int] = [chunk.table.source - 1 for chunk in chunks]
        present, like, rank = sorted(set(numbers)), self._layers[0][1].a, self._rank
        rows = mask = None
        if len(present) < len(self.names):
            rows = torch.tensor([number * rank + row for number in present for row in range(rank)], device=like.device)
        if len(present) > 1:
            mask = torch.zeros(sum(len(chunk.tokens) for chunk in chunks), len(present) * rank, dtype=like.dtype)
            at = 0
            for number, chunk in zip(numbers, chunks, strict=True):
                first, end = present.index(number) * rank, at + len(chunk.tokens)
                mask[at:end, first : first + rank] = 1
                at = end
            mask = mask.to(like.device)
        return _Tokens(rows, mask)

    def _hook(self, layer: LoraLayer) -> Callable[[Any, tuple[Tensor, ...], Tensor], Tensor]:
        def add(module: Any, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            rows, mask = self._tokens
            a, b = layer if rows is None else (layer.a[rows], layer.b[rows])
            states = inputs[0].flatten(0, -2).to(a.dtype) @ a.T
            if mask is not None:
                states *= mask
            return out + (states @ b).view_as(out).to(out.dtype)

        return add


def _sizes(module: Any) -> tuple[int, int]:
    """Return the sizes of a layer's input and output."""
    if not isinstance(module, Conv1D):
        return module.in_features, module.out_features
    size_in, size_out = module.weight.shape
    return size_in, size_out


def _read(name: str, place: str, modules: Mapping[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the scaled A and B of an adapter's layers. Raises OptionError."""

    def error(why: str) -> OptionError:
        return OptionError(f"adapters={{{name!r}: {brief(place)}}}: {why}")

    config_file, weights_file = _files(place, error)
    try:
        read: Any = json.loads(config_file.read_bytes())
        tensors: dict[str, Tensor] = load_file(weights_file)
    except (OSError, ValueError, RecursionError, SafetensorError) as cause:
        raise error(f"it cannot be read ({cause})") from cause
    config = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if config.get("peft_type") != "LORA":
        raise error("only adapters of LoRA run beside others; one of another kind can be given as adapter=")
    strange = [option for option in _REFUSED if config.get(option)]
    if strange or config.get("bias", "none") != "none":
        raise error(f"its option {(strange or ['bias'])[0]} changes more than layers' products; give it as adapter=")
    if str(config.get("init_lora_weights")).lower().startswith(_CHANGING):
        raise error("its option init_lora_weights changes the model's own weights; give it as adapter=")
    halves: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise error(f"it has {key!r}, which is no part of a linear layer's adapter; give it as adapter=")
        halves.setdefault(match[1], {})[match[2]] = tensor.float()
    if not halves:
        raise error("it has no layers")
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for layer, pair in halves.items():
        module = modules.get(layer)
        if "experts" in layer.split("."):
            raise error(f"it has {layer!r}, and experts are run without adapters by name; give it as adapter=")
        if not isinstance(module, (nn.Linear, QuantizedLinear, Conv1D)):
            raise error(f"the model has no linear layer {layer!r} in its body; was it trained for this model?")
        if sorted(pair) != ["A", "B"] or (pair["A"].shape[1:], pair["B"].shape[:1]) != _shapes(module):
            raise error(f"the shapes of {layer!r} do not fit the model's; was it trained for this model?")
        rank = len(pair["A"])
        if rank != pair["B"].shape[1] or not rank:
            raise error(f"A and B of {layer!r} have different ranks, or the rank 0")
        try:
            scaled = pair["B"] * _scale(config, layer, rank)
        except (AttributeError, TypeError, ValueError, OverflowError, re.error) as cause:
            raise error(f"lora_alpha is a number, and alpha_pattern has numbers by patterns ({cause})") from cause
        if not (pair["A"].isfinite().all() and scaled.isfinite().all()):
            raise error(f"{layer!r} has weights that are no numbers, or becomes so by its lora_alpha")
        pairs[layer] = pair["A"], scaled
    return pairs


def _shapes(module: Any) -> tuple[tuple[int], tuple[int]]:
    size_in, size_out = _sizes(module)
    return (size_in,), (size_out,)


def _scale(config: Mapping[str, Any], layer: str, rank: int) -> float:
    """Return the scale of a layer's product, as PEFT defines it."""
    patterns: Mapping[str, float] = config.get("alpha_pattern") or {}
    matching = [alpha for pattern, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", layer)]
    alpha = float(matching[0] if matching else config.get("lora_alpha", 8))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _files(place: str, error: Callable[[str], OptionError]) -> list[Path]:
    """Return the files of an adapter, from its folder or the Hub."""
    folder = Path(place)
    if folder.is_dir():
        for file in FILES:
            if not (folder / file).is_file():
                raise error(f"the folder has no {file}, and so no adapter that PEFT saved")
        return [folder / file for file in FILES]
    hub: Any = import_module("huggingface_hub")  # slow import, not needed for folders
    try:
        return [Path(hub.hf_hub_download(place, file)) for file in FILES]
    except Exception as cause:  # the library and its dependencies raise various exceptions
        raise error(f"it is no folder, and cannot be had from the Hub ({cause})") from cause
