"""Division of the tokens of a vocabulary at a set of looping characters: the parts of a `LoopSlice`."""

from __future__ import annotations

import numpy as np

from ..chart.rows import FIRST_LEAD
from ..jit.aliases import Bits, Bytes, Int, Ints, Words
from ..jit.wide import inner_njit, njit
from ..utf8 import FIRST_NEXT, utf8_step
from .branches import (
    BEGUN,
    BELOW_HIGH,
    BELOW_LEADS,
    BELOW_LOW,
    ILL_FORMED,
    OWN,
    OWN_END,
    SUBTREE_END,
    Branches,
    TokenTrie,
)


@njit
def divide(trie: TokenTrie, loop: Bits, stay_chars: Ints, exit_chars: Ints) -> None:
    """Mark the trie nodes: stay_chars (int32 [n]) or exit_chars is the characters begun, both -1 where neither.

    loop: uint64 [3], the looping ASCII bytes in two words, and the looping lead bytes, as in Chart.loops. A node stays
    if the bytes to it stay in the loop; it is an exit if only its last byte leaves, at a character's boundary.
    """
    stay_chars[:] = -1
    exit_chars[:] = -1
    within = np.zeros(trie.deepest + 1, np.int32)
    begun = np.zeros(trie.deepest + 1, np.int32)
    node: Int = 1
    while node < len(trie.byte):
        level: Int = trie.depth[node]
        byte = np.int32(trie.byte[node])
        place = within[level - 1]
        after = -1
        if place > 0:
            after = utf8_step(place, byte)
        elif byte < FIRST_NEXT or byte >= FIRST_LEAD:
            bits = loop[byte >> 6] if byte < FIRST_NEXT else loop[2]
            if bits >> np.uint64(byte & 63) & np.uint64(1):
                after = utf8_step(place, byte)
        if after < 0:
            if place == 0:
                exit_chars[node] = begun[level - 1]
            node = trie.skip[node]
            continue
        within[level] = after
        begun[level] = begun[level - 1] + (1 if place == 0 else 0)
        stay_chars[node] = begun[level]
        node += 1


@njit
def list_exits(trie: TokenTrie, exit_chars: Ints, exits: Ints, start: Ints) -> Int:
    """Write the nodes with exit_chars from 0 on to `exits`, by byte and then by characters; how many they are.

    exits: int32 [n]; start: int32 [257], where those of each byte begin
    """
    by_chars = np.zeros(trie.deepest + 2, np.int32)
    start[:] = 0
    for node in range(len(exit_chars)):
        if exit_chars[node] >= 0:
            by_chars[exit_chars[node] + 1] += 1
            start[np.int64(trie.byte[node]) + 1] += 1
    for chars in range(1, len(by_chars)):
        by_chars[chars] += by_chars[chars - 1]
    for byte in range(1, len(start)):
        start[byte] += start[byte - 1]
    ordered = np.empty(start[256], np.int32)
    for node in range(len(exit_chars)):
        chars = exit_chars[node]
        if chars >= 0:
            ordered[by_chars[chars]] = node
            by_chars[chars] += 1
    place = start.copy()
    for at in range(len(ordered)):
        byte = trie.byte[ordered[at]]
        exits[place[byte]] = ordered[at]
        place[byte] += 1
    return len(ordered)


@njit
def list_staying(trie: TokenTrie, stay_chars: Ints, ids: Ints, chars: Ints, row: Words) -> Int:
    """Write the tokens of nodes with stay_chars from 0 on, and these, in their order, to `ids` and `chars`; how many.

    ids, chars: int32 [tokens]; row: uint32 [words], in which the bits of the tokens are set
    """
    begin = np.zeros(trie.deepest + 2, np.int32)
    starts = trie.token_start
    for node in range(len(stay_chars)):
        if stay_chars[node] >= 0:
            begin[stay_chars[node] + 1] += starts[node + 1] - starts[node]
    for number in range(1, len(begin)):
        begin[number] += begin[number - 1]
    for node in range(len(stay_chars)):
        number = stay_chars[node]
        if number < 0:
            continue
        for at in range(starts[node], starts[node + 1]):
            token = trie.ids[at]
            ids[begin[number]] = token
            chars[begin[number]] = number
            begin[number] += 1
            row[token >> 5] |= np.uint32(1) << np.uint32(token & 31)
    return begin[len(begin) - 1]


@njit
def mark_way(parents: Ints, exits: Ints, on_way: Bytes) -> None:
    """Set the flags of all nodes but the root that have an exit at or below them; on_way: uint8 [n], first 0."""
    for at in range(len(exits)):
        node: Int = exits[at]
        while node > 0 and on_way[node] == 0:
            on_way[node] = 1
            node = parents[node]


@njit
def merge_tails(
    trie: Branches, exits: Ints, start: Ints, merged: Bytes, tails: Branches, members: Ints, bounds: Ints
) -> Int:
    """Put together what is below exits of the same byte: a trie by levels, of which the root has a child a byte.

    exits: int32 [m], nodes of Branches, those of byte b from start[b] to start[b + 1]; merged: uint8 [256], which bytes
    are wanted; tails: arrays with room for it, `first` for one more; how many nodes it has
    members: int32 [n], bounds: int32 [n + 1], scratch: the nodes of Branches that each node is made of
    """
    places = np.zeros(257, np.int32)
    tails.byte[0] = 0
    bounds[0] = bounds[1] = 0
    tails.first[0] = 1
    count, filled = 1, 0
    for byte in range(256):
        if merged[byte] and start[byte] < start[byte + 1]:
            for at in range(start[byte], start[byte + 1]):
                members[filled] = exits[at]
                filled += 1
            tails.byte[count] = byte
            count += 1
            bounds[count] = filled
    node = 1
    while node < count:
        tails.first[node] = count
        count = add_children(trie, tails, members, bounds, node, count, places)
        node += 1
    tails.first[count] = count
    number_tokens(trie, tails, members, bounds, count)
    return count


@inner_njit
def add_children(
    trie: Branches, tails: Branches, members: Ints, bounds: Ints, node: Int, count: Int, places: Ints
) -> Int:
    """Add the children of a node of the tails, in the order of their bytes; how many nodes there are then.

    places: int32 [257], all 0, and again afterwards
    """
    if bounds[node + 1] - bounds[node] == 1:  # as most are: its children are in order
        member, filled = members[bounds[node]], bounds[count]
        for child in range(trie.first[member], trie.first[member + 1]):
            tails.byte[count] = trie.byte[child]
            members[filled] = child
            filled += 1
            count += 1
            bounds[count] = filled
        return count
    low, high = 256, -1
    for at in range(bounds[node], bounds[node + 1]):
        for child in range(trie.first[members[at]], trie.first[members[at] + 1]):
            byte = np.int64(trie.byte[child])
            places[byte + 1] += 1
            low, high = min(low, byte), max(high, byte)
    filled = bounds[count]
    for byte in range(low, high + 1):
        more = places[byte + 1]
        places[byte + 1] = filled
        filled += more
        if more:
            tails.byte[count] = byte
            count += 1
            bounds[count] = filled
    for at in range(bounds[node], bounds[node + 1]):
        for child in range(trie.first[members[at]], trie.first[members[at] + 1]):
            byte = np.int64(trie.byte[child])
            members[places[byte + 1]] = child
            places[byte + 1] += 1
    for byte in range(low, high + 1):
        places[byte + 1] = 0
    return count


@inner_njit
def number_tokens(trie: Branches, tails: Branches, members: Ints, bounds: Ints, count: Int) -> None:
    """Fill in the tokens of the tails, so that those of a subtree lie together, and what is below each node."""
    tokens, first, below = tails.tokens, tails.first, tails.below
    for node in range(count - 1, -1, -1):
        own = 0
        for word in range(below.shape[1]):
            below[node, word] = 0
        for at in range(bounds[node], bounds[node + 1]):
            member = members[at]
            own += trie.tokens[member, OWN_END] - trie.tokens[member, OWN]
            for word in (BELOW_LOW, BELOW_HIGH, BELOW_LEADS):
                below[node, word] |= trie.below[member, word]
            below[node, BEGUN] = max(below[node, BEGUN], trie.below[member, BEGUN])
        tokens[node, OWN_END] = tokens[node, SUBTREE_END] = own
        for child in range(first[node], first[node + 1]):
            tokens[node, SUBTREE_END] += tokens[child, SUBTREE_END]
    below[0, BEGUN] = ILL_FORMED
    tokens[0, OWN] = 0
    for node in range(count):
        filled = tokens[node, OWN]
        for at in range(bounds[node], bounds[node + 1]):
            for place in range(trie.tokens[members[at], OWN], trie.tokens[members[at], OWN_END]):
                tails.ids[filled] = trie.ids[place]
                filled += 1
        tokens[node, OWN_END] = filled
        tokens[node, SUBTREE_END] += tokens[node, OWN]
        for child in range(first[node], first[node + 1]):
            tokens[child, OWN] = filled
            filled += tokens[child, SUBTREE_END]
