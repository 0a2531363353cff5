"""Counter-based random numbers: a draw depends only on the row's seed and the step."""

from __future__ import annotations

import os
from random import Random

_GENERATOR = Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GENERATOR.seed)
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def fresh_bits(count: int) -> int:
    """Return `count` random bits of a generator that the operating system seeds in each process.

    Asking the system each time releases the GIL, and another thread may then hold it for as long as a step takes.
    """
    return _GENERATOR.getrandbits(count)


def mix(value: int) -> int:
    """Return 64 pseudo-random bits, a bijection. Source: SplitMix64 (Steele, Lea, Flood 2014)."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def row_key(seed: int, sample: int) -> int:
    """Return the key of one sample of one prompt."""
    return mix(mix(seed & _MASK) ^ sample)


def uniform(key: int, step: int, attempt: int = 0) -> float:
    """Return a number in [0, 1) with 53 random bits. attempt: number of the draw within a step"""
    return (mix(mix(key ^ mix(step)) ^ attempt) >> 11) * 2.0**-53
