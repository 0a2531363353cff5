"""Strings that must differ, in arrays: what has been written, what is being written, and what tokens do to that.

All strings that are written, or begun, are nodes of a trie, one for each byte. Sets of strings grow by one; those of
which one goes on with the other have the same root, below which a string's number says how many came before it. So a
string is in a set if its number is below the set's count, and what is begun can come to one that is there only if the
lowest number below its node is. A set that goes on in two ways gets a root of its own for the second one.

A *place* is a spot (what a guide makes of a chart's state), a node or NONE, and a set; equal ones have one number.
Kernels answer as kernels/answers.py says: UNREADY where a token's move is not known, EXPAND where a set must be copied.
"""

from __future__ import annotations

import numpy as np

from .answers import DEAD, EXPAND, FULL, NEVER, UNREADY
from .chart.ways import TokenBytes
from .jit.aliases import Bytes, Int, Ints
from .jit.arrays import Arrays, Table, Vector
from .jit.wide import inner_njit, njit

NONE = -1
# Entries of sizes
NODES, SETS, PLACES, MOVES, LOOKS, HITS, ENTRIES, BUSY = range(8)
# Columns of nodes: LOW is the lowest number of a string that begins so, ENDS that of one whose rest some token has
# before a quote, NUMBER its own; INNER the node of `Spelt`, or NONE; ONWARD the node after it that was made first; HERE
# the place that was. Most have one only; the others are in the table.
PARENT, BYTE, LOW, NUMBER, ENDS, INNER, ONWARD, HERE = range(8)
# Columns of sets: BEFORE is the set without its last string, TEXT; NEXT one with one more, below the same root.
ROOT, COUNT, BEFORE, TEXT, NEXT, HIT = range(6)
# Columns of places
SPOT, NODE, SET = range(3)
# Columns of spots, and their flags: whether the string in progress must differ; whether the tokens that may be refused
# are known; whether some of them have whole strings, of LONGEST bytes at most; whether plain tokens lead nowhere else.
FLAGS, LONGEST = range(2)
DIFFERS, KNOWN, WHOLES, LOOPS = 1, 2, 4, 8
# Columns of moves: the spot that a token leads to, or NONE if the container ends; whether it ends a string, and one
# that must differ, of which it has MORE bytes; and where in it another one begins, or NONE, or the chart's state
# outside.
AFTER, ENDING, MORE, BEGIN = range(4)
GOES_ON, ENDS_OTHER, ENDS_THIS = range(3)
# Columns of the table, and kinds of its keys; those of places are FIRST_SPOT + spot, those of looks -FIRST_SPOT - spot.
KIND, ONE, OTHER, VALUE = range(4)
CHILD, MOVE, FORK, HITTING, FIRST_SPOT = range(5)
LEFT = -16
"""`step` answers with LEFT - state where a token leads outside, to a state of the chart."""
# Roots of `Spelt`
WHOLE, RESTS = range(2)


class Spelt(Arrays):
    """What the tokens of a vocabulary have of strings, as two tries.

    table: int32 [n, 4], children by KIND (CHILD), ONE (node), OTHER (byte); below WHOLE the strings that some tokens
    have in whole; below RESTS, backwards, what some have before a quote; is_end: uint8 [m], whether one ends at a node;
    depth: int32 [m], how many bytes lead there; is_plain: uint8 [V], whether a token has letters of ASCII only, that
    strings have as they are
    """

    table: Table[np.int32]
    is_end: Vector[np.uint8]
    depth: Vector[np.int32]
    is_plain: Vector[np.uint8]


class Told(Arrays):
    """All there is of one guide; see the names of the columns.

    sizes: int64 [8], how much of each is in use, and whether another thread makes room
    looks: int32 [places], a number that places of equal masks have in common, NONE if that is not known
    table: int32 [n, 4], a power of two, VALUE NONE where it is free
    """

    spelt: Spelt
    tokens: TokenBytes
    sizes: Vector[np.int64]
    nodes: Table[np.int32]
    sets: Table[np.int32]
    places: Table[np.int32]
    looks: Vector[np.int32]
    spots: Table[np.int32]
    moves: Table[np.int32]
    table: Table[np.int32]


@inner_njit
def slot_of(table: Ints, kind: Int, one: Int, other: Int) -> Int:
    """Where a key is in a table, or the free slot where it would be."""
    mask = len(table) - 1
    # Below 2**63, so that it is the same without JIT
    mixed = (kind & 0x7FFFFFFF) * 0xC2B2AE35 ^ (one & 0x7FFFFFFF) * 0x9E3779B1 ^ (other & 0x7FFFFFFF) * 0x85EBCA6B
    mixed = ((mixed ^ (mixed >> 32)) & 0x7FFFFFFF) * 0x5BD1E995
    slot = (mixed ^ (mixed >> 15)) & mask
    while table[slot, VALUE] != NONE and (
        table[slot, ONE] != one or table[slot, OTHER] != other or table[slot, KIND] != kind
    ):
        slot = (slot + 1) & mask
    return slot


@inner_njit
def fill(table: Ints, slot: Int, kind: Int, one: Int, other: Int, value: Int) -> None:
    """Put a key with its value in a free slot."""
    table[slot, KIND] = kind
    table[slot, ONE] = one
    table[slot, OTHER] = other
    table[slot, VALUE] = value


@njit
def rehash(old: Ints, new: Ints) -> None:
    """Put all that is in one table in another, larger one."""
    for at in range(len(old)):
        if old[at, VALUE] != NONE:
            kind, one, other = np.int64(old[at, KIND]), np.int64(old[at, ONE]), np.int64(old[at, OTHER])
            fill(new, slot_of(new, kind, one, other), kind, one, other, np.int64(old[at, VALUE]))


@inner_njit
def has_room(told: Told, more: Int) -> bool:
    """Whether so many bytes of strings, and what comes with them, have room."""
    sizes = told.sizes
    return (
        sizes[NODES] + more + 2 <= len(told.nodes)
        and sizes[SETS] + 2 <= len(told.sets)
        and sizes[PLACES] < len(told.places)
        and sizes[MOVES] < len(told.moves)
        and 2 * (sizes[ENTRIES] + more + 8) <= len(told.table)
    )


@inner_njit
def number_of(told: Told, kind: Int, one: Int, other: Int, which: Int) -> tuple[Int, bool]:
    """The value of a key, and whether it is new: then it is the next of what `sizes` counts."""
    slot = slot_of(told.table, kind, one, other)
    known = np.int64(told.table[slot, VALUE])
    if known != NONE:
        return known, False
    value = np.int64(told.sizes[which])
    told.sizes[which] += 1
    told.sizes[ENTRIES] += 1
    fill(told.table, slot, kind, one, other, value)
    return value, True


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
        found, is_new = number_of(told, CHILD, node, byte, NODES)
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
def mark(told: Told, node: Int, number: Int) -> None:
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
    found, _ = number_of(told, HITTING, hit, inner, HITS)
    return found


@inner_njit
def grown(told: Told, held: Int, node: Int) -> Int:
    """The newest set below its root with one more string."""
    sets = told.sets
    count = np.int64(sets[held, COUNT])
    mark(told, node, count)
    hit = hit_after(told, np.int64(sets[held, HIT]), node)
    after = new_set(told, np.int64(sets[held, ROOT]), count + 1, held, node, hit)
    sets[held, NEXT] = after
    return after


@inner_njit
def added(told: Told, held: Int, node: Int) -> Int:
    """The set with one more string, a node below its root; DEAD if it is there, EXPAND if the set must be copied."""
    sets = told.sets
    if told.nodes[node, NUMBER] < sets[held, COUNT]:
        return DEAD
    after = np.int64(sets[held, NEXT])
    if after == NONE:
        return grown(told, held, node)
    if sets[after, TEXT] == node:
        return after
    known = np.int64(told.table[slot_of(told.table, FORK, held, node), VALUE])
    return EXPAND if known == NONE else known


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


@njit
def fork(told: Told, held: Int, node: Int, texts: Ints, buffer: Bytes) -> Int:
    """The set with one more string, below another root; FULL if there is no room.

    texts: int32 [the set's count], written to; buffer: uint8, as long as all the strings
    """
    if not has_room(told, len(buffer)):
        return FULL
    root, count, at = new_root(told), len(texts), held
    for number in range(count - 1, -1, -1):
        texts[number] = told.sets[at, TEXT]
        at = np.int64(told.sets[at, BEFORE])
    for number in range(count):
        mark(told, copied(told, root, np.int64(texts[number]), buffer), number)
    sets = told.sets
    base = new_set(
        told, root, count, np.int64(sets[held, BEFORE]), np.int64(sets[held, TEXT]), np.int64(sets[held, HIT])
    )
    after = grown(told, base, copied(told, root, node, buffer))
    fill(told.table, slot_of(told.table, FORK, held, node), FORK, held, node, after)
    told.sizes[ENTRIES] += 1
    return after


@inner_njit
def look_of(told: Told, spot: Int, node: Int, held: Int) -> Int:
    """The number of the mask of a place, NONE if it has to be looked at by itself."""
    flags = told.spots[spot, FLAGS]
    if not flags & KNOWN or (node != NONE and told.nodes[node, ENDS] < told.sets[held, COUNT]):
        return NONE
    hit, inner = np.int64(0), np.int64(NONE)
    if flags & WHOLES:
        hit = np.int64(told.sets[held, HIT])
        if node != NONE:
            inner = np.int64(told.nodes[node, INNER])
        if inner != NONE and told.spelt.depth[inner] > told.spots[spot, LONGEST]:
            inner = np.int64(NONE)
    found, _ = number_of(told, -FIRST_SPOT - spot, hit, inner, LOOKS)
    return found


@inner_njit
def place_of(told: Told, spot: Int, node: Int, held: Int) -> Int:
    """The number of a place."""
    places = told.places
    here = np.int64(NONE)
    if node != NONE:
        here = np.int64(told.nodes[node, HERE])
        if here != NONE and places[here, SPOT] == spot and places[here, SET] == held:
            return here
    if node != NONE and here == NONE:
        place, is_new = np.int64(told.sizes[PLACES]), True
        told.sizes[PLACES] += 1
        told.nodes[node, HERE] = place
    else:
        place, is_new = number_of(told, FIRST_SPOT + spot, node, held, PLACES)
    if is_new:
        places[place, SPOT] = spot
        places[place, NODE] = node
        places[place, SET] = held
        told.looks[place] = look_of(told, spot, node, held)
    return place


@njit
def begin(told: Told) -> Int:
    """The empty set, below a new root."""
    return new_set(told, new_root(told), 0, NONE, NONE, 0)


@njit
def enter(told: Told, spot: Int, held: Int, data: Bytes) -> Int:
    """The place of a set where a string has come to some bytes, if its spot has one that must differ; or FULL."""
    if not has_room(told, len(data)):
        return FULL
    node = np.int64(NONE)
    if told.spots[spot, FLAGS] & DIFFERS:
        node = extended(told, np.int64(told.sets[held, ROOT]), data, 0, len(data))
    return place_of(told, spot, node, held)


@njit
def find(told: Told, held: Int, data: Bytes) -> Int:
    """The node of a string below the root of a set; or FULL."""
    if not has_room(told, len(data)):
        return FULL
    return extended(told, np.int64(told.sets[held, ROOT]), data, 0, len(data))


@njit
def add(told: Told, held: Int, node: Int) -> Int:
    """As `added`, or FULL."""
    return added(told, held, node) if has_room(told, 0) else FULL


@njit
def learn(told: Told, spot: Int, token: Int, after: Int, ending: Int, more: Int, begin: Int) -> Int:
    """Note what a token does at a spot; its number, or FULL."""
    if not has_room(told, 0):
        return FULL
    move, _ = number_of(told, MOVE, spot, token, MOVES)
    told.moves[move, AFTER] = after
    told.moves[move, ENDING] = ending
    told.moves[move, MORE] = more
    told.moves[move, BEGIN] = begin
    return move


@njit(nogil=False)
def step(told: Told, place: Int, token: Int) -> Int:
    """The place after a token; DEAD if it ends a string that is there; from LEFT down what is outside; or a code.

    Other threads wait until it has answered: so nobody has to take a lock.
    """
    if place < 0 or place >= told.sizes[PLACES] or told.sizes[BUSY]:
        return UNREADY
    spot = np.int64(told.places[place, SPOT])
    node, held = np.int64(told.places[place, NODE]), np.int64(told.places[place, SET])
    first, last = np.int64(told.tokens.start[token]), np.int64(told.tokens.start[token + 1])
    if not has_room(told, last - first):
        return FULL
    if told.spots[spot, FLAGS] & LOOPS and told.spelt.is_plain[token]:
        if node != NONE:
            node = extended(told, node, told.tokens.data, first, last)
        return place_of(told, spot, node, held)
    move = np.int64(told.table[slot_of(told.table, MOVE, spot, token), VALUE])
    if move == NONE:
        return UNREADY
    after, begun = np.int64(told.moves[move, AFTER]), np.int64(told.moves[move, BEGIN])
    ending = told.moves[move, ENDING]
    if ending == ENDS_THIS:
        node = extended(told, node, told.tokens.data, first, first + told.moves[move, MORE])
        held = added(told, held, node)
        if held < 0:
            return held
    if after == NONE:
        return LEFT - begun
    if not told.spots[after, FLAGS] & DIFFERS:
        node = np.int64(NONE)
    elif begun == NONE:
        node = extended(told, node, told.tokens.data, first, last)
    else:
        node = extended(told, np.int64(told.sets[held, ROOT]), told.tokens.data, first + begun, last)
    return place_of(told, after, node, held)


@njit
def step_copying(told: Told, place: Int, token: Int) -> Int:
    """The node of the string that a token ends, where the set must be copied before `step`; or FULL."""
    spot = np.int64(told.places[place, SPOT])
    move = np.int64(told.table[slot_of(told.table, MOVE, spot, token), VALUE])
    first = np.int64(told.tokens.start[token])
    more = np.int64(told.moves[move, MORE])
    if not has_room(told, more):
        return FULL
    return extended(told, np.int64(told.places[place, NODE]), told.tokens.data, first, first + more)
