"""The strings, and sets of them. Kernels answer as kernels/answers.py says: FULL where there is no room."""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXPAND, FULL, NEVER
from ..jit.aliases import Bytes, Int, Ints
from ..jit.wide import inner_njit, njit
from .layout import (
    BEFORE,
    BYTE,
    CHILD,
    COUNT,
    ENDS,
    ENTRIES,
    FORK,
    FORKED,
    FORKED_BY,
    HERE,
    HIT,
    HITS,
    HITTING,
    INNER,
    LOW,
    NEXT,
    NODES,
    NONE,
    NUMBER,
    ONWARD,
    PARENT,
    RESTS,
    ROOT,
    SETS,
    TEXT,
    VALUE,
    WHOLE,
    Told,
    fill,
    has_space,
    slot_of,
    value_of,
)


@inner_njit
def new_node(told: Told, node: Int, parent: Int, byte: Int, inner: Int) -> None:
    """Write a new node."""
    nodes = told.nodes
    nodes[node, PARENT] = parent
    nodes[node, BYTE] = byte
    nodes[node, LOW] = nodes[node, NUMBER] = nodes[node, ENDS] = NEVER
    nodes[node, INNER] = inner
    nodes[node, ONWARD] = nodes[node, HERE] = NONE


@inner_njit
def child(told: Told, node: Int, byte: Int) -> Int:
    """The node after a byte, made if there is none."""
    nodes = told.nodes
    onward = np.int64(nodes[node, ONWARD])
    if onward == NONE:
        found, is_new = np.int64(told.sizes[NODES]), True
        told.sizes[NODES] += 1
        nodes[node, ONWARD] = found
    elif nodes[onward, BYTE] == byte:
        found, is_new = onward, False
    else:
        found, is_new = value_of(told, CHILD, node, byte, NODES)
    if is_new:
        inner = np.int64(nodes[node, INNER])
        if inner != NONE:
            inner = np.int64(told.spelt.table[slot_of(told.spelt.table, CHILD, inner, byte), VALUE])
        new_node(told, found, node, byte, inner)
    return found


@inner_njit
def extended(told: Told, node: Int, data: Bytes, first: Int, last: Int) -> Int:
    """The node after the bytes data[first:last]."""
    for at in range(first, last):
        node = child(told, node, np.int64(data[at]))
    return node


@inner_njit
def write_string(told: Told, node: Int, number: Int) -> None:
    """Write a string, which so many came before."""
    nodes = told.nodes
    nodes[node, NUMBER] = number
    at = node
    while at != NONE and nodes[at, LOW] > number:
        nodes[at, LOW] = number
        at = np.int64(nodes[at, PARENT])
    at, rest = node, np.int64(RESTS)
    while at != NONE and rest != NONE:
        if told.spelt.is_end[rest] and nodes[at, ENDS] > number:
            nodes[at, ENDS] = number
        if nodes[at, PARENT] == NONE:
            break
        rest = np.int64(told.spelt.table[slot_of(told.spelt.table, CHILD, rest, np.int64(nodes[at, BYTE])), VALUE])
        at = np.int64(nodes[at, PARENT])


@inner_njit
def new_set(told: Told, root: Int, count: Int, before: Int, text: Int, hit: Int) -> Int:
    """One more set."""
    number = np.int64(told.sizes[SETS])
    told.sizes[SETS] += 1
    sets = told.sets
    sets[number, ROOT] = root
    sets[number, COUNT] = count
    sets[number, BEFORE] = before
    sets[number, TEXT] = text
    sets[number, NEXT] = NONE
    sets[number, HIT] = hit
    return number


@inner_njit
def new_root(told: Told) -> Int:
    """A node that no byte leads to."""
    node = np.int64(told.sizes[NODES])
    told.sizes[NODES] += 1
    new_node(told, node, NONE, 0, WHOLE)
    return node


@inner_njit
def hit_after(told: Told, hit: Int, node: Int) -> Int:
    """What is noted of the strings in a set that some tokens have in whole, after one more string."""
    inner = np.int64(told.nodes[node, INNER])
    if inner == NONE or not told.spelt.is_end[inner]:
        return hit
    found, _ = value_of(told, HITTING, hit, inner, HITS)
    return found


@inner_njit
def grown(told: Told, held: Int, node: Int) -> Int:
    """The newest set below its root with one more string."""
    sets = told.sets
    count = np.int64(sets[held, COUNT])
    write_string(told, node, count)
    hit = hit_after(told, np.int64(sets[held, HIT]), node)
    after = new_set(told, np.int64(sets[held, ROOT]), count + 1, held, node, hit)
    sets[held, NEXT] = after
    return after


@inner_njit
def added(told: Told, held: Int, node: Int) -> Int:
    """The set with one more string, a node below its root; DEAD if it is there, EXPAND where `fork` comes first."""
    sets = told.sets
    if told.nodes[node, NUMBER] < sets[held, COUNT]:
        return DEAD
    after = np.int64(sets[held, NEXT])
    if after == NONE:
        return grown(told, held, node)
    if sets[after, TEXT] == node:
        return after
    known = np.int64(told.table[slot_of(told.table, FORK, held, node), VALUE])
    if known != NONE:
        return known
    told.sizes[FORKED] = held
    told.sizes[FORKED_BY] = node
    return EXPAND


@inner_njit
def length_of(told: Told, node: Int) -> Int:
    """How many bytes a string has."""
    length = np.int64(0)
    while told.nodes[node, PARENT] != NONE:
        length += 1
        node = np.int64(told.nodes[node, PARENT])
    return length


@inner_njit
def copied(told: Told, root: Int, node: Int, buffer: Bytes) -> Int:
    """The node below another root of the same string, which has room in a buffer."""
    at = len(buffer)
    while told.nodes[node, PARENT] != NONE:
        at -= 1
        buffer[at] = told.nodes[node, BYTE]
        node = np.int64(told.nodes[node, PARENT])
    return extended(told, root, buffer, at, len(buffer))


@njit
def bytes_of(told: Told, node: Int, buffer: Bytes) -> Int:
    """Write a string to the end of a buffer as far as it has room; how many bytes it has."""
    length, at = length_of(told, node), len(buffer)
    while at > 0 and told.nodes[node, PARENT] != NONE:
        at -= 1
        buffer[at] = told.nodes[node, BYTE]
        node = np.int64(told.nodes[node, PARENT])
    return length


@njit
def size_of(told: Told, held: Int, node: Int) -> Int:
    """How many bytes the strings of a set have, and another one."""
    found = length_of(told, node)
    while told.sets[held, BEFORE] != NONE:
        found += length_of(told, np.int64(told.sets[held, TEXT]))
        held = np.int64(told.sets[held, BEFORE])
    return found


@njit(nogil=False)
def fork(told: Told, held: Int, node: Int, texts: Ints, buffer: Bytes) -> Int:
    """The set with one more string, below another root; FULL if there is no room.

    texts: int32 [the set's count], written to; buffer: uint8, as long as all the strings
    """
    if not has_space(told, len(buffer)):
        return FULL
    root, count, at = new_root(told), len(texts), held
    for number in range(count - 1, -1, -1):
        texts[number] = told.sets[at, TEXT]
        at = np.int64(told.sets[at, BEFORE])
    for number in range(count):
        write_string(told, copied(told, root, np.int64(texts[number]), buffer), number)
    sets = told.sets
    base = new_set(
        told, root, count, np.int64(sets[held, BEFORE]), np.int64(sets[held, TEXT]), np.int64(sets[held, HIT])
    )
    after = grown(told, base, copied(told, root, node, buffer))
    fill(told.table, slot_of(told.table, FORK, held, node), FORK, held, node, after)
    told.sizes[ENTRIES] += 1
    return after


@njit(nogil=False)
def empty_set(told: Told) -> Int:
    """The empty set, below a new root."""
    return new_set(told, new_root(told), 0, NONE, NONE, 0)


@njit(nogil=False)
def find(told: Told, held: Int, data: Bytes) -> Int:
    """The node of a string below the root of a set; or FULL."""
    if not has_space(told, len(data)):
        return FULL
    return extended(told, np.int64(told.sets[held, ROOT]), data, 0, len(data))


@njit(nogil=False)
def add_string(told: Told, held: Int, node: Int) -> Int:
    """As `added`, or FULL."""
    return added(told, held, node) if has_space(told, 0) else FULL
