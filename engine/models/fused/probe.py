"""Whether a fused decoder gives the states of the body that it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...memory.tables import BLOCK
from ..blocks.reach import Reach, layer_reaches
from ..blocks.storage import LayerBlocks
from ..nearness import is_rounding

Attend = Callable[[int, Tensor], Tensor]
Run = Callable[[Tensor, Tensor, Tensor, Sequence[LayerBlocks], Attend], Tensor]

_TEXT = (0, 1, 2, 3, 1, 0, 3)
_BLOCKS = (1, 0)
"""The text lies in the second of two blocks."""
_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far states may be from the body's in any case, as a share of these; norms and angles are float32 throughout."""


@torch.no_grad()
def is_right(run: Run, scale: float, body: Any, config: Any) -> bool:
    """Whether `run` of a fused decoder makes of a few tokens, read in two steps, what the body does.

    On a GPU the kernel for up to 4 tokens makes the products of the second step, and not of the first.

    scale: what products of queries and keys are multiplied by
    """
    ids = torch.tensor(_TEXT, device=body.device)
    expected: Tensor = body(input_ids=ids[None], use_cache=False).last_hidden_state[0].double()
    reaches = layer_reaches(config)
    layers = [LayerBlocks(len(_BLOCKS)) for _ in reaches]
    found: list[Tensor] = []
    for start, end in ((0, 5), (5, len(_TEXT))):
        positions = torch.arange(start, end, device=ids.device)
        slots = (positions + _BLOCKS[0] * BLOCK).to(torch.int32)
        found.append(run(ids[start:end], positions, slots, layers, _attention(layers, reaches, positions, end, scale)))

    def far_from(states: Tensor) -> float:
        return ((states.double() - expected).square().sum() / expected.square().sum()).sqrt().item()

    def anew() -> float:
        return far_from(body(input_ids=ids[None], use_cache=False).last_hidden_state[0])

    far = far_from(torch.cat(found))
    return far <= _TOLERANCES[body.dtype] or is_rounding(far, body, anew)


def _attention(
    layers: Sequence[LayerBlocks], reaches: Sequence[Reach], positions: Tensor, end: int, scale: float
) -> Attend:
    """Attention of tokens at these positions to all that are in the text's block."""

    def attend(number: int, queries: Tensor) -> Tensor:
        layer, seen = layers[number], reaches[number].allowed(positions[None], end)[0]
        keys, values = (stored[_BLOCKS[0], :, :end] for stored in (layer.keys, layer.values))
        mixed = scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys[None], values[None], seen, scale=scale, enable_gqa=True
        )
        return mixed[0].transpose(0, 1)

    return attend
