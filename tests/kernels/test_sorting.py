"""Sorting in buckets gives what NumPy gives at once, and can be broken off in between."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from trellm.kernels.suffix.tree import argsorted

from ..thresholds import thresholds

RANDOM = np.random.default_rng(0)
KEYS = {
    "random": RANDOM.integers(0, 1 << 63, 3000).astype(np.uint64),
    "few values": RANDOM.integers(-2, 3, 3000),
    "all equal": np.zeros(3000, np.int64),
    "skewed": (RANDOM.random(3000) ** 9 * 1000).astype(np.int64),
    "sorted": np.arange(3000),
    "falling": np.arange(3000)[::-1].copy(),
    "large": np.array([2**64 - 1, 0, 2**63] * 1000, np.uint64),
    "a piece": np.arange(16)[::-1].copy(),
    "none": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("kind", ["quicksort", "stable"])
@pytest.mark.parametrize("name", KEYS)
def test_keys_are_sorted(name: str, kind: Literal["quicksort", "stable"], monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, keys_sorted_at_once=16)
    keys: Any = KEYS[name]
    order = argsorted(keys, lambda _: None, kind)
    assert np.array_equal(np.sort(order), np.arange(len(keys)))
    expected = np.argsort(keys, kind="stable")
    assert np.array_equal(keys[order], keys[expected])
    assert kind != "stable" or np.array_equal(order, expected)


def test_sorting_can_be_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, keys_sorted_at_once=16)
    looked: list[int] = []

    def look(steps: int) -> None:
        looked.append(steps)
        if len(looked) == 190:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        argsorted(KEYS["random"], look)
    assert looked == [0] * 190
