"""Random numbers by counter: the draw of a step depends on the row's seed and the step, on nothing else."""

from __future__ import annotations

import os
from random import Random

_GENERATOR = Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GENERATOR.seed)
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def fresh_bits(count: int) -> int:
    """So many random bits, of a generator that each process has from the operating system.

    To ask the system itself each time would let another thread have the interpreter, for as long as a step takes.
    """
    return _GENERATOR.getrandbits(count)


def fresh_seed() -> int:
    """A seed that nobody chose."""
    return fresh_bits(64)


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
