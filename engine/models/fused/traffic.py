"""How many bytes a step has to read, at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..blocks.reach import layer_reaches
from .decoder import FusedDecoder


def step_bytes(decoder: FusedDecoder, config: Any, ends: Sequence[int], head: int = 0) -> int:
    """The bytes of weights, and of the keys and values of texts, that a step reads once: no step can do with less.

    ends: how many tokens each text has, with the one that is read now; windows of layers count
    head: the bytes of the language model head, which is no part of the decoder
    """
    layers = decoder.layers
    size = layers[0].before.weight.element_size()
    width = len(layers[0].before.weight)
    total = head + (len(ends) + 1) * width * size  # embeddings of the tokens, and the last norm
    for layer, reach in zip(layers, layer_reaches(config), strict=True):
        tensors = [layer.before.weight, layer.after.weight]
        tensors += [part for norm in (layer.head_norms,) if norm is not None for part in norm[:2]]
        for product in (layer.attention, layer.out, layer.gates, layer.down):
            tensors += [part for part in product if part is not None]
        seen = sum(end if reach.longest is None else min(end, reach.longest) for end in ends)
        total += sum(tensor.nbytes for tensor in tensors) + 2 * seen * decoder.heads.keys * decoder.heads.size * size
    return total
