"""Literal text before a constraint, along the token trie: the tokens that spell it, and those that extend beyond it.

The text is uint8 [n]. Places are 0 ... n; an edge is a token that spells the bytes between two places.
"""

from __future__ import annotations

from ..jit.aliases import Bytes, Int, Ints, Longs
from ..jit.wide import inner_njit, njit
from .branches import TokenTrie


@inner_njit
def child_of(trie: TokenTrie, node: Int, value: Int) -> Int:
    """Return the child of a trie node by its byte, -1 if there is none."""
    child, end = node + 1, trie.skip[node]
    while child < end:
        if trie.byte[child] >= value:
            return child if trie.byte[child] == value else -1
        child = trie.skip[child]
    return -1


@njit
def nodes_along(trie: TokenTrie, data: Bytes, begin: Int, out: Ints) -> Int:
    """Write the nodes of data[begin:begin + 1], data[begin:begin + 2] ... to out (int32). Return their number."""
    node, count = 0, 0
    while begin + count < len(data):
        node = child_of(trie, node, data[begin + count])
        if node < 0:
            break
        out[count] = node
        count += 1
    return count


@njit
def end_nodes(trie: TokenTrie, data: Bytes, out: Ints) -> None:
    """Write the node of data[place:] for each place to out (int32 [n]), -1 if no token begins with it."""
    for place in range(len(data)):
        node, at = 0, place
        if len(data) - place > trie.deepest:
            node = -1
        while node >= 0 and at < len(data):
            node = child_of(trie, node, data[at])
            at += 1
        out[place] = node


@njit
def shorten(trie: TokenTrie, data: Bytes, cost: Int, needed: Ints) -> None:
    """Lower needed (int32 [n + 1]), the cost from each place to the end, by paths of edges that cost `cost` each."""
    for place in range(len(data) - 1, -1, -1):
        node, at = 0, place
        while at < len(data):
            node = child_of(trie, node, data[at])
            at += 1
            if node < 0:
                break
            if trie.token_start[node + 1] > trie.token_start[node]:
                needed[place] = min(needed[place], needed[at] + cost)


@njit
def first_unspellable(trie: TokenTrie, data: Bytes, bounds: Longs, spelt: Bytes) -> Int:
    """Return the first text that no tokens spell, -1 if there is none; text i is data[bounds[i] : bounds[i + 1]].

    spelt: uint8 [longest text + 1], scratch; afterwards 1 at the length of each prefix of that text that tokens spell
    """
    for number in range(len(bounds) - 1):
        begin, end = bounds[number], bounds[number + 1]
        spelt[: end - begin + 1] = 0
        spelt[0] = 1
        for place in range(begin, end):
            if not spelt[place - begin]:
                continue
            node, at = 0, place
            while at < end:
                node = child_of(trie, node, data[at])
                at += 1
                if node < 0:
                    break
                if trie.token_start[node + 1] > trie.token_start[node]:
                    spelt[at - begin] = 1
        if not spelt[end - begin]:
            spelt[end - begin + 1 :] = 0
            return number
    return -1
