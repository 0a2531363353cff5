"""Fewer states for the same language."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..limits import spend

MAX_ROUNDS = 200
STEPS_PER_TRANSITION = 8


def minimize(
    transitions: NDArray[np.int32], accepting: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Drops states that reach no accepting one, then merges states that no text tells apart (Moore).

    transitions: int32 [states, classes], -1 where there is none; accepting: bool [states]; state 0 is first
    and stays so. Moore's rounds are as many as the longest text that is needed to tell two states apart;
    beyond MAX_ROUNDS, in long counted chains, the states are left as they are.
    """
    transitions, accepting = _trim(transitions, accepting)
    # From 0 on without gaps, as all later ones: pairs of labels are made one number below.
    kinds, labels = np.unique(accepting, return_inverse=True)
    count = len(kinds)
    for _ in range(MAX_ROUNDS):
        spend(STEPS_PER_TRANSITION * transitions.size)
        refined = labels
        for column in transitions.T:
            target = np.where(column >= 0, labels[column], -1)
            _, refined = np.unique(refined * (count + 1) + target + 1, return_inverse=True)
        refined_count = int(refined.max(initial=-1)) + 1
        if refined_count == count:
            return _merge(transitions, accepting, refined)
        labels, count = refined, refined_count
    return transitions, accepting


def _trim(transitions: NDArray[np.int32], accepting: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Without the states that reach no accepting one."""
    spend(STEPS_PER_TRANSITION * transitions.size)
    sources, columns = np.nonzero(transitions >= 0)
    before: dict[int, list[int]] = {}
    for source, target in zip(sources.tolist(), transitions[sources, columns].tolist(), strict=True):
        before.setdefault(target, []).append(source)
    alive = set(np.flatnonzero(accepting).tolist())
    pending = list(alive)
    while pending:
        for source in before.get(pending.pop(), ()):
            if source not in alive:
                alive.add(source)
                pending.append(source)
    kept = np.array(sorted(alive), np.int64)
    numbers = np.full(len(accepting) + 1, -1, np.int32)  # the last one is what -1 refers to
    numbers[kept] = np.arange(len(kept))
    return numbers[transitions[kept]], accepting[kept]


def _merge(
    transitions: NDArray[np.int32], accepting: NDArray[np.bool_], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """One state for each label, in the order in which they first occur."""
    _, first = np.unique(labels, return_index=True)
    kept = np.sort(first)
    numbers = np.full(len(labels) + 1, -1, np.int32)
    numbers[:-1] = np.searchsorted(kept, first[labels])
    return numbers[transitions[kept]], accepting[kept]
