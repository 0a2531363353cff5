"""The optimiser beside its definition, and beside torch's own where there is one."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch

from .support import Muon, Optimiser, orthogonal


@pytest.mark.parametrize("shape", [(12, 12), (20, 8), (8, 20)])
def test_singular_values_are_about_one(shape: tuple[int, int]) -> None:
    """In any direction that the matrix has, and only those; the directions stay."""
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.logspace(0, -2, min(shape))
    found = orthogonal(torch.stack([left * values @ right, 7 * left @ right]))
    for matrix in found:
        inner = left.mT @ matrix @ right.mT
        assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=1e-4)
        assert 0.5 < inner.diagonal().min() <= inner.diagonal().max() < 1.3


def test_matrices_move_as_in_torch() -> None:
    library: Any = torch.optim
    if not hasattr(library, "Muon"):
        pytest.skip("a torch without Muon")
    torch.manual_seed(2)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((6, 4), (5, 5), (6, 4))]
    theirs = [torch.nn.Parameter(matrix.detach().clone()) for matrix in ours]
    muon = Muon(ours, 0.1)
    peer = library.Muon(theirs, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        muon.step(0.01)
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=0.01 * 0.2 * math.sqrt(6) * 0.05), "up to bfloat16, which torch has"


@pytest.mark.parametrize("with_muon", [True, False])
def test_it_learns_and_goes_on_where_it_was(with_muon: bool) -> None:
    torch.manual_seed(3)
    goal, given = torch.randn(8, 8), torch.randn(64, 8)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers: Any = torch.nn.ModuleList([torch.nn.Linear(8, 8)])
            self.head = torch.nn.Linear(8, 8)

        def forward(self, inputs: Any) -> Any:
            return self.head(self.layers[0](inputs))

    def run(network: Any, optimiser: Optimiser, steps: int) -> float:
        loss: Any = torch.zeros(())
        for _ in range(steps):
            network.zero_grad()
            loss = (network(given) - given @ goal).square().mean()
            loss.backward()
            optimiser.step(0.02)
        return loss.item()

    network = Network()
    begin = run(network, optimiser := Optimiser(network, rate=0.02, decay=0.0, with_muon=with_muon), 1)
    known, state = Network(), {name: value.clone() for name, value in network.state_dict().items()}
    known.load_state_dict(state)
    other = Optimiser(known, rate=0.02, decay=0.0, with_muon=with_muon)
    torch.save(optimiser.state_dict(), buffer := io.BytesIO())
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer))
    end = run(network, optimiser, 60)
    assert end < begin / 5
    assert run(known, other, 60) == end
