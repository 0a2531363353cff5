"""Many fixed texts as one piece of graph."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .utf8 import Template

Ints = NDArray[np.int64]

MAX_CELLS = 1 << 25


def text_tree(texts: Iterable[bytes]) -> Template | None:
    """The tree of the texts: a node for each prefix, the way out behind each text.

    No text may be the beginning of another, be empty, or hold the byte 0. None if one is so long among so many
    that the texts side by side would take more than MAX_CELLS bytes.
    """
    listed = list(texts)
    width = max(map(len, listed))
    if width * len(listed) > MAX_CELLS:
        return None
    ordered = np.unique(np.array(listed, f"S{width}"))
    cells = ordered.view(np.uint8).reshape(len(ordered), width)
    length = np.char.str_len(ordered)
    shared = np.zeros(len(ordered), np.int64)
    shared[1:] = (cells[1:] != cells[:-1]).argmax(axis=1)
    fresh = length - 1 - shared
    base = 1 + np.cumsum(fresh) - fresh
    rows = np.arange(len(ordered))
    before = np.zeros(len(ordered), np.int64)
    sources: list[Ints] = []
    values: list[Ints] = []
    targets: list[Ints] = []
    for depth in range(width):
        owner = np.maximum.accumulate(np.where(shared <= depth, rows, 0))
        after = np.where(depth + 1 == length, -1, base[owner] + depth - shared[owner])
        new = (shared <= depth) & (depth < length)
        sources.append(before[new])
        values.append(cells[new, depth].astype(np.int64))
        targets.append(after[new])
        before = after
    source = np.concatenate(sources)
    order = np.argsort(source, kind="stable")
    value = np.concatenate(values)[order].astype(np.int32)
    edges = np.stack([value, value, np.concatenate(targets)[order].astype(np.int32)], axis=1)
    ends = np.cumsum(np.bincount(source, minlength=1 + int(fresh.sum())))
    return Template(ends.astype(np.int32), edges)
