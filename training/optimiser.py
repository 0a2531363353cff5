"""The optimiser: Muon for the matrices of the layers, AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5


def orthogonal(matrices: Any) -> Any:
    """The nearest matrices whose singular values are all about 1 (0.7 to 1.2), [n, rows, columns] as given.

    Five steps of a quintic Newton-Schulz iteration. Source: K. Jordan and others, "Muon: an optimizer for the hidden
    layers of neural networks" (2024), whose coefficients these are.
    """
    first, third, fifth = _COEFFICIENTS
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    found = matrices.mT if is_tall else matrices
    found = found / (found.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        square = found @ found.mT
        found = first * found + (third * square + fifth * square @ square) @ found
    return found.mT if is_tall else found


class Muon:
    """Moves matrices along the orthogonal part of their gradients' mean; matrices of one shape are moved together.

    A move is as large as one of AdamW's is on average, so that both can have one learning rate. Source: J. Liu and
    others, "Muon is Scalable for LLM Training" (2025).
    """

    def __init__(self, matrices: Sequence[Any], decay: float, momentum: float = 0.95) -> None:
        import torch

        self._decay = decay
        self._momentum = momentum
        by_shape: dict[Any, list[Any]] = {}
        for matrix in matrices:
            by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        self._groups = list(by_shape.values())
        self._means = [torch.zeros_like(torch.stack(group)) for group in self._groups]

    def step(self, rate: float) -> None:
        """Move all matrices by their gradients."""
        import torch

        with torch.no_grad():
            for group, mean in zip(self._groups, self._means, strict=True):
                gradients = torch.stack([matrix.grad for matrix in group])
                mean.lerp_(gradients, 1 - self._momentum)
                moves = orthogonal(gradients.lerp(mean, self._momentum))
                size = 0.2 * math.sqrt(max(moves.shape[-2:]))
                for matrix, move in zip(group, moves, strict=True):
                    matrix.mul_(1 - rate * self._decay).add_(move, alpha=-rate * size)

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on."""
        return {"means": self._means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for mean, known in zip(self._means, state["means"], strict=True):
            mean.copy_(known)


class Optimiser:
    """AdamW for all weights, or for those only that are no matrices of layers, with Muon for these."""

    def __init__(self, network: Any, *, rate: float, decay: float, with_muon: bool) -> None:
        import torch

        flat: list[Any] = []
        full: list[Any] = []
        matrices: list[Any] = []
        for name, weight in network.named_parameters():
            (flat if weight.ndim < 2 else matrices if with_muon and ".layers." in name else full).append(weight)
        groups = [{"params": full, "weight_decay": decay}, {"params": flat, "weight_decay": 0.0}]
        is_fused = full[0].device.type == "cuda"
        self._adam: Any = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=is_fused)
        self._muon = Muon(matrices, decay) if matrices else None

    def step(self, rate: float) -> None:
        """Move all weights by their gradients, which are forgotten."""
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        if self._muon is not None:
            self._muon.step(rate)

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on."""
        return {"adam": self._adam.state_dict()} | ({} if self._muon is None else {"muon": self._muon.state_dict()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._adam.load_state_dict(state["adam"])
        if self._muon is not None:
            self._muon.load_state_dict(state["muon"])
