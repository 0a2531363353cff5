"""Operations of a decoder layer: Triton kernels on a GPU, torch operations elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import linear

from . import plain
from .plain import HeadNorms, Heads

MATVEC = True
"""True if Triton computes products of up to four tokens; otherwise torch computes all."""


def norm(residual: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm (Zhang and Sennrich, 2019, arXiv:1910.07467) of rows [n, width], after adding `added`.

    residual: contiguous; the sum is stored here
    Squares are summed in float32. Normalised numbers are rounded to the dtype before they are multiplied by the
    weights.
    """
    if residual.is_cuda:
        from .triton_decoder import norm as on_device

        return on_device(residual, added, weight, eps)
    return plain.norm(residual, added, weight, eps)


def place(
    product: Tensor,
    angles: tuple[Tensor, Tensor],
    norms: HeadNorms | None,
    slots: Tensor,
    stored: tuple[Tensor, Tensor],
    heads: Heads,
) -> Tensor:
    """Split the product of queries, keys and values; store keys and values, and return the queries [n, heads, size].

    product: [n, (queries + 2 keys) * size], contiguous
    angles: cosines and sines [n, size / 2] in the same dtype, for the rotary embedding of queries and keys (Su et al.,
        2021, arXiv:2104.09864), after their norms if there are any
    slots: int32 [n], block * places + place of each key and value; -1 for tokens that are not stored
    stored: keys and values [blocks, heads, places, size], contiguous
    """
    if product.is_cuda:
        from .triton_decoder import place as on_device

        return on_device(product, angles, norms, slots, stored, heads)
    return plain.place(product, angles, norms, slots, stored, heads)


def gate(product: Tensor) -> Tensor:
    """Return SwiGLU [n, width] of contiguous rows [n, 2 width]: SiLU of left halves, rounded, times right halves."""
    if product.is_cuda:
        from .triton_decoder import gate as on_device

        return on_device(product)
    return plain.gate(product)


def multiply(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return states [n, in], contiguous, times weights [out, in], plus a bias [out] if given: [n, out]."""
    kernel = _matvec(states, weight)
    return linear(states, weight, bias) if kernel is None else kernel(states, weight, bias)


def multiply_normed(
    residual: Tensor, added: Tensor | None, scales: Tensor, eps: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Return `multiply` of `norm`; in one launch for few tokens if `added` is None."""
    kernel = _matvec(residual, weight) if added is None else None
    if kernel is None:
        return multiply(norm(residual, added, scales, eps), weight, bias)
    return kernel(residual, weight, bias, norm=(scales, eps))


def multiply_gated(
    residual: Tensor, added: Tensor | None, scales: Tensor, eps: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Return `gate` of `multiply` of `norm`; in one launch for few tokens if `added` is None."""
    kernel = _matvec(residual, weight) if added is None else None
    if kernel is None:
        return gate(multiply(norm(residual, added, scales, eps), weight, bias))
    return kernel(residual, weight, bias, norm=(scales, eps), gate=True)


def multiply_onto(residual: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Multiply, and add the product to `residual` for few tokens. Return the product if it is still to be added."""
    kernel = _matvec(states, weight)
    if kernel is None:
        return linear(states, weight, bias)
    kernel(states, weight, bias, residual=residual)
    return None


def _matvec(states: Tensor, weight: Tensor) -> Callable[..., Tensor] | None:
    """Return the kernel for products of few tokens, or None if it does not apply."""
    if not (MATVEC and states.is_cuda):
        return None
    from .triton_decoder import can_multiply, multiply

    return multiply if can_multiply(states, weight) else None
