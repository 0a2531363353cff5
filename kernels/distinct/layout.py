"""What has been written, and what is being written, in arrays.

All strings that are written, or begun, are nodes of a trie, one for each byte. Sets of strings grow by one; those of
which one goes on with the other have the same root, below which a string's number says how many came before it. So a
string is in a set if its number is below the set's count, and what is begun can come to one that is there only if the
lowest number below its node is. A set that goes on in two ways gets a root of its own for the second one.

A *place* is a spot (what a guide makes of a chart's state), a node or NONE, and a set; equal ones have one number.
"""

from __future__ import annotations

import numpy as np

from ..chart.ways import TokenBytes
from ..jit.aliases import Int, Ints
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit

NONE = -1
# Entries of sizes; after EXPAND, the set to be copied and the string that it is to go on with are in the last two
NODES, SETS, PLACES, MOVES, LOOKS, HITS, ENTRIES, BUSY, FORKED, FORKED_BY = range(10)
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
FIRST_FLAT = 3 << 29
"""Places are handed out as states by numbers from here on; the chart's own states are far below."""
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

    sizes: int64 [10], how much of each is in use, whether another thread makes room, and what is to be copied
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
def has_space(told: Told, more: Int) -> bool:
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
def value_of(told: Told, kind: Int, one: Int, other: Int, which: Int) -> tuple[Int, bool]:
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
