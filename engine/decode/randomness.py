"""Random numbers by counter: the draw of a step depends on the row's seed and the step, on nothing else."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def fresh_seed() -> int:
    """A seed from the operating system."""
    return secrets.randbits(64)


def mix(value: int) -> int:
    """64 bits that look random, one to one. Source: SplitMix64 (Steele, Lea, Flood 2014)."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def row_key(seed: int, sample: int) -> int:
    """The key of one sample of one row."""
    return mix(mix(seed & _MASK) ^ sample)


def uniform(key: int, step: int, attempt: int = 0) -> float:
    """A number in [0, 1), 53 bits; `attempt` counts the draws of one step."""
    return (mix(mix(key ^ mix(step)) ^ attempt) >> 11) * 2.0**-53


def uniforms(keys: NDArray[np.uint64], steps: NDArray[np.uint64]) -> NDArray[np.float64]:
    """`uniform` of several rows, each at a step of its own, in the first attempt."""
    mixed = _mixed(_mixed(keys ^ _mixed(steps)))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of each; products of arrays leave out what is beyond 64 bits by themselves."""
    values = values + np.uint64(_GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
