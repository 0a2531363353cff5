"""Attention over blocks by definition, one token at a time, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.floating[Any]]


def attention(
    query: Reals,
    keys: Reals,
    values: Reals,
    blocks: Sequence[int],
    position: int,
    *,
    scale: float,
    window: int = 0,
    chunk: int = 0,
    cap: float = 0.0,
    sinks: Reals | None = None,
) -> Reals:
    """Return the attention output of the token at a position: [query heads, size of values].

    query: [query heads, size of keys]
    keys, values: [all blocks, heads, BLOCK, size]; token i of the sequence lies in blocks[i // BLOCK]
    window: number of tokens that it attends to, including itself; chunk: it attends to none before its own chunk of
        this many tokens; 0 for no limit
    cap: scores become cap * tanh(score / cap), unless 0
    sinks: [query heads], an extra score in the softmax, with a value of zero
    """
    room = keys.shape[2]
    seen = [
        token
        for token in range(position + 1)
        if (not window or token > position - window) and (not chunk or token >= position // chunk * chunk)
    ]
    group = query.shape[0] // keys.shape[1]
    results: list[Reals] = []
    for number, vector in enumerate(query):
        head = number // group
        scores = np.array([scale * (vector @ keys[blocks[t // room], head, t % room]) for t in seen])
        if cap:
            scores = cap * np.tanh(scores / cap)
        beside = [] if sinks is None else [sinks[number]]
        weights = np.exp(scores - max([*scores, *beside]))
        total = weights.sum() + sum(np.exp(sink - max([*scores, *beside])) for sink in beside)
        results.append(
            sum(
                (
                    weight / total * values[blocks[t // room], head, t % room]
                    for weight, t in zip(weights, seen, strict=True)
                ),
                np.zeros(values.shape[3]),
            )
        )
    return np.array(results)
