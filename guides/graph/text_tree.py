"""Tries of many fixed texts as fragments of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import NOWHERE
from ...kernels.jit.aliases import Ints
from ...kernels.jit.compiling import call
from ...kernels.suffix.tree import PIECE, argsorted
from ...kernels.trie.texts import WAY_OUT, grow_tree, lay_tree, share_prefixes
from ..limits import current, spend
from .utf8 import ByteFragment

Places = NDArray[np.int64]

_WINDOW = 8
_WINDOWS = 4
_FEW = 1000
_AT_ONCE = 1 << 13
# Bytes of a node and its edge, in a fragment and in the graph that it is copied to
_NODE_BYTES = 64


class ByteRuns(NamedTuple):
    """An automaton for kernels/trie/texts.py: its byte runs, offsets of each state's runs, most runs of a state."""

    runs: Ints
    offsets: NDArray[np.int64]
    most: int


NOTHING = ByteRuns(np.zeros((0, 3), np.int32), np.zeros(1, np.int64), 0)


def beside(runs: Sequence[Sequence[tuple[int, int, int]]]) -> ByteRuns:
    """Build an automaton from the runs of each state: (first byte, last byte, target or WAY_OUT)."""
    listed = np.array([run for found in runs for run in found], np.int32).reshape(-1, 3)
    return ByteRuns(listed, np.cumsum([0, *map(len, runs)]), max(map(len, runs)))


def text_tree(texts: Sequence[bytes]) -> ByteFragment:
    """Build the trie of the texts, with an exit after each text.

    The texts are sorted and distinct; none is empty or a prefix of another.
    """
    return _grown(texts, WAY_OUT, NOTHING, NOWHERE)


def all_but_texts(texts: Sequence[bytes], automaton: ByteRuns) -> ByteFragment:
    """Build the language of an automaton, from state 0 to its exit, without texts as for `text_tree`."""
    return _grown(texts, NOWHERE, automaton, 0)


def _grown(texts: Sequence[bytes], behind: int, automaton: ByteRuns, start: int) -> ByteFragment:
    data = b"".join(texts)
    bounds = np.array([0, *accumulate(map(len, texts))], np.int64)
    most = len(data) + len(automaton.offsets)
    edges = np.empty((most * (automaton.most + 2), 3), np.int32)
    ends = np.empty(most, np.int32)
    places = np.empty((len(data) + 1, 4), np.int32)
    values = np.frombuffer(data, np.uint8)
    count = call(grow_tree, values, bounds, behind, automaton.runs, automaton.offsets, start, places, edges, ends)
    return ByteFragment(ends[:count], edges[: ends.item(count - 1)])


def any_text(texts: Sequence[bytes]) -> ByteFragment:
    """Build the trie of any texts: unsorted, repeated, empty, or prefixes of others."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return any_of(b"".join(texts), lengths)


def any_of(data: bytes, lengths: Places) -> ByteFragment:
    """Build the trie of one or more texts, given by their concatenation and lengths.

    Raises LimitError where that exceeds the limits of the running call.
    """
    spend(2 * len(data) + 10 * len(lengths))
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    values = np.frombuffer(data, np.uint8)
    order = ordered(data, bounds)
    shared = np.empty(len(order), np.int32)
    stays = np.zeros(len(order), np.uint8)
    count = 1 + sum(call(share_prefixes, values, bounds, order, *part, shared, stays) for part in _parts(len(order)))
    meter = current()
    if meter is not None:
        meter.check_memory(count * _NODE_BYTES)
    path = np.zeros(int(lengths.max()) + 1, np.int32)
    ends = np.zeros(count, np.int32)
    at_ends = np.zeros(count, np.uint8)
    edges = np.empty((0, 3), np.int32)
    for _ in range(2):  # first count the edges of each node, then write them
        known = 1
        for part in _parts(len(order)):
            known = call(lay_tree, values, bounds, order, *part, shared, stays, known, path, edges, ends, at_ends)
        if not len(edges):
            edges = np.empty((int(ends.sum()), 3), np.int32)
            ends[1:] = np.cumsum(ends[:-1])
            ends[0] = 0
    return ByteFragment(ends, edges, np.flatnonzero(at_ends).astype(np.int32))


def _parts(count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of the numbers below `count`. Raises Cancelled between them."""
    for first in range(0, count, _AT_ONCE):
        spend(0)
        yield first, min(first + _AT_ONCE, count)


def ordered(data: bytes, bounds: Places) -> Places:
    """Sort the numbers of the texts data[bounds[i] : bounds[i + 1]].

    NumPy sorts by windows of bytes while many texts are tied; Python sorts the remaining ties.
    """
    begins, ends = bounds[:-1], bounds[1:]
    key = _window(data, begins, ends)
    order = argsorted(key, spend, "stable")
    spend(0)
    key = key[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = key[1:] != key[:-1]
    for depth in range(_WINDOW, _WINDOW * _WINDOWS, _WINDOW):
        tied = np.flatnonzero(~(first & np.append(first[1:], True)))
        if len(tied) <= _FEW:
            break
        numbers = order[tied]
        key = _window(data, begins[numbers] + depth, ends[numbers])
        sorting = argsorted(key, spend, "stable")
        sorting = sorting[argsorted(np.cumsum(first)[tied][sorting], spend, "stable")]
        order[tied] = numbers[sorting]
        key = key[sorting]
        first[tied[1:]] |= key[1:] != key[:-1]
    tied = np.flatnonzero(~(first & np.append(first[1:], True)))
    if len(tied):
        order[tied] = list(
            _sorted(order[tied].tolist(), lambda number: data[bounds.item(number) : bounds.item(number + 1)])
        )
    return order


def _sorted(numbers: list[int], text: Callable[[int], bytes]) -> Iterator[int]:
    """Yield the numbers in the order of their texts, sorted and merged in batches."""
    pieces: list[list[int]] = []
    for first in range(0, len(numbers), _AT_ONCE):
        spend(100 * min(_AT_ONCE, len(numbers) - first))
        pieces.append(sorted(numbers[first : first + _AT_ONCE], key=text))
    for at, number in enumerate(merge(*pieces, key=text)):
        if at % _AT_ONCE == 0:
            spend(0)
        yield number


def _window(data: bytes, begins: Places, ends: Places) -> NDArray[np.uint64]:
    """Return the next bytes from each offset as an ordering key, with zeros beyond the text's end: uint64."""
    values = np.frombuffer(data or b"\0", np.uint8)
    found = np.zeros(len(begins), np.uint64)
    for first in range(0, len(begins), PIECE):
        spend(0)
        key = found[first : first + PIECE]
        last = ends[first : first + PIECE]
        for ahead in range(_WINDOW):
            places = begins[first : first + PIECE] + ahead
            key <<= np.uint64(8)
            key |= np.where(places < last, values[np.minimum(places, len(values) - 1)], 0).astype(np.uint64)
    return found
