"""The pass for training on a CPU beside transformers' own: logits, and the gradients of all weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ..thresholds import thresholds
from .support import networks, passes


@pytest.mark.parametrize(("width", "length"), [(64, 24), (96, 21)], ids=["grouped heads", "single heads"])
def test_it_is_the_network(monkeypatch: pytest.MonkeyPatch, width: int, length: int) -> None:
    thresholds(monkeypatch, block_of_training=8)  # several blocks, the last of which may be smaller
    network = networks.make(50, width=width, layers=2, seed=4, end=0, stop=1)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in network.parameters():  # no weight of a norm is 1, and attention is not even
            weight.copy_(1 + 0.3 * torch.randn(weight.shape) if weight.ndim == 1 else 0.2 * torch.randn(weight.shape))
    ids, tilt = torch.randint(50, (3, length)), torch.randn(3, length, 50)

    def results(logits: Any) -> tuple[Any, dict[str, Any]]:
        network.zero_grad()
        (logits.float().log_softmax(-1) * tilt).sum().backward()
        return logits.float().detach(), {name: weight.grad.clone() for name, weight in network.named_parameters()}

    expected, slopes = results(network(input_ids=ids, use_cache=False).logits)
    found, ours = results(passes.scores(passes.states(network.model, ids), network.lm_head))
    assert (found - expected).norm() < 0.03 * expected.norm()
    assert set(ours) == set(slopes) and len(slopes) == 2 * 11 + 2
    for name, slope in slopes.items():
        assert (ours[name] - slope).norm() < 0.06 * slope.norm(), name
