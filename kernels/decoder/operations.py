"""What lies between a layer's products, and the products: kernels on a GPU, plain torch operations elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import linear

from . import plain
from .plain import HeadNorms, Heads

MATVEC = True
"""Whether a product of up to four tokens is made by the kernel of triton_decoder.py; else all are torch's."""


def norm(residual: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """RMS norm (Zhang and Sennrich, 2019, arXiv:1910.07467) of rows [n, width], which `added` is added to first.

    residual: contiguous; the sum is left there
    Sums of squares are float32, and what is normalised is rounded to the dtype before it is multiplied by the weights.
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
    """From the product of queries, keys and values to what attention needs: the queries [n, heads, size].

    product: [n, (queries + 2 keys) * size], contiguous
    angles: cosines and sines [n, size / 2] in the same dtype, by which the halves of queries and keys are turned
        against each other (Su et al., 2021, arXiv:2104.09864), after their norms if there are any
    slots: int32 [n], where keys and values go: the number of a block times its places, and a place; -1 for nowhere
    stored: keys and values [blocks, heads, places, size], contiguous
    """
    if product.is_cuda:
        from .triton_decoder import place as on_device

        return on_device(product, angles, norms, slots, stored, heads)
    return plain.place(product, angles, norms, slots, stored, heads)


def gate(product: Tensor) -> Tensor:
    """SwiGLU of rows [n, 2 width], contiguous: SiLU of the left halves, rounded, times the right ones: [n, width]."""
    if product.is_cuda:
        from .triton_decoder import gate as on_device

        return on_device(product)
    return plain.gate(product)


def multiply(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """States [n, in], contiguous, times weights [out, in], plus a bias [out] if there is one: [n, out]."""
    kernel = _matvec(states, weight)
    return linear(states, weight, bias) if kernel is None else kernel(states, weight, bias)


def multiply_normed(
    residual: Tensor, added: Tensor | None, scales: Tensor, eps: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """`multiply` of `norm`, in one launch where there are few tokens and nothing is added."""
    kernel = _matvec(residual, weight) if added is None else None
    if kernel is None:
        return multiply(norm(residual, added, scales, eps), weight, bias)
    return kernel(residual, weight, bias, norm=(scales, eps))


def multiply_gated(
    residual: Tensor, added: Tensor | None, scales: Tensor, eps: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """`gate` of `multiply` of `norm`, in one launch where there are few tokens and nothing is added."""
    kernel = _matvec(residual, weight) if added is None else None
    if kernel is None:
        return gate(multiply(norm(residual, added, scales, eps), weight, bias))
    return kernel(residual, weight, bias, norm=(scales, eps), gate=True)


def multiply_onto(residual: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """What is still to be added to `residual`: the product, or nothing where it has been, with few tokens."""
    kernel = _matvec(states, weight)
    if kernel is None:
        return linear(states, weight, bias)
    kernel(states, weight, bias, residual=residual)
    return None


def _matvec(states: Tensor, weight: Tensor) -> Callable[..., Tensor] | None:
    """The kernel for products of a few tokens, if these are."""
    if not (MATVEC and states.is_cuda):
        return None
    from .triton_decoder import can_multiply, multiply

    return multiply if can_multiply(states, weight) else None
