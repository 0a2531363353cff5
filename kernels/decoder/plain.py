"""The operations between a layer's products in torch, rounded where the layers of transformers round."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu


class Heads(NamedTuple):
    """Numbers of query and key heads, and their size; values are like keys."""

    queries: int
    keys: int
    size: int


class HeadNorms(NamedTuple):
    """Weights [size] of the norms of queries and keys, and their epsilon."""

    queries: Tensor
    keys: Tensor
    eps: float


def norm(residual: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Return normalised rows [n, width], after adding `added` to `residual` in place."""
    if added is not None:
        residual += added
    return _normalised(residual, weight, eps)


def place(
    product: Tensor,
    angles: tuple[Tensor, Tensor],
    norms: HeadNorms | None,
    slots: Tensor,
    stored: tuple[Tensor, Tensor],
    heads: Heads,
) -> Tensor:
    """Return rotated queries [n, heads, size]; store rotated keys, and values, except where the slot is -1."""
    states = product.view(len(product), heads.queries + 2 * heads.keys, heads.size)
    queries, both = states[:, : heads.queries], states[:, heads.queries :]
    keys, values = both[:, : heads.keys], both[:, heads.keys :]
    if norms is not None:
        queries, keys = _normalised(queries, norms.queries, norms.eps), _normalised(keys, norms.keys, norms.eps)
    real = slots >= 0
    used_slots = slots[real].long()
    width = stored[0].shape[2]
    blocks, within = used_slots // width, used_slots % width
    stored[0][blocks, :, within] = _rotated(keys, *angles)[real]
    stored[1][blocks, :, within] = values[real]
    return _rotated(queries, *angles)


def gate(product: Tensor) -> Tensor:
    """Return SwiGLU of rows: SiLU of the left halves, times the right ones."""
    left, right = product.chunk(2, -1)
    return silu(left) * right


def _normalised(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    exact = states.float()
    return weight * (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps)).to(states.dtype)


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding with cosines and sines [n, size / 2]."""
    left, right = states.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([left * cos + -right * sin, right * cos + left * sin], -1)
