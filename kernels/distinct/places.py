"""Where texts are: where tokens lead, and which places have equal masks.

Kernels answer as kernels/answers.py says: UNREADY where a token's move is not known, EXPAND where a set must be copied.
"""

from __future__ import annotations

import numpy as np

from ..answers import FULL, UNREADY
from ..jit.aliases import Bytes, Int
from ..jit.wide import inner_njit, njit
from .layout import (
    AFTER,
    BEGIN,
    BUSY,
    COUNT,
    DIFFERS,
    ENDING,
    ENDS,
    ENDS_THIS,
    FIRST_FLAT,
    FIRST_SPOT,
    FLAGS,
    HERE,
    HIT,
    INNER,
    KNOWN,
    LONGEST,
    LOOKS,
    LOOPS,
    MORE,
    MOVE,
    MOVES,
    NODE,
    NONE,
    PLACES,
    ROOT,
    SET,
    SPOT,
    VALUE,
    WHOLES,
    Told,
    has_space,
    slot_of,
    value_of,
)
from .strings import added, extended


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
    found, _ = value_of(told, -FIRST_SPOT - spot, hit, inner, LOOKS)
    return found


@inner_njit
def interned_place(told: Told, spot: Int, node: Int, held: Int) -> Int:
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
        place, is_new = value_of(told, FIRST_SPOT + spot, node, held, PLACES)
    if is_new:
        places[place, SPOT] = spot
        places[place, NODE] = node
        places[place, SET] = held
        told.looks[place] = look_of(told, spot, node, held)
    return place


@njit(nogil=False)
def enter(told: Told, spot: Int, held: Int, data: Bytes) -> Int:
    """The place of a set where a string has come to some bytes, if its spot has one that must differ; or FULL."""
    if not has_space(told, len(data)):
        return FULL
    node = np.int64(NONE)
    if told.spots[spot, FLAGS] & DIFFERS:
        node = extended(told, np.int64(told.sets[held, ROOT]), data, 0, len(data))
    return interned_place(told, spot, node, held)


@njit(nogil=False)
def learn(told: Told, spot: Int, token: Int, after: Int, ending: Int, more: Int, begin: Int) -> Int:
    """Note what a token does at a spot; its number, or FULL."""
    if not has_space(told, 0):
        return FULL
    move, _ = value_of(told, MOVE, spot, token, MOVES)
    told.moves[move, AFTER] = after
    told.moves[move, ENDING] = ending
    told.moves[move, MORE] = more
    told.moves[move, BEGIN] = begin
    return move


@njit(nogil=False)
def step_on(told: Told, state: Int, token: Int) -> Int:
    """The state after a token, from a place's: a place's too, or the chart's outside; DEAD; or a code.

    Any numbers may be given: UNREADY where they name no place, or no token.
    """
    place = state - FIRST_FLAT
    if place < 0 or place >= told.sizes[PLACES] or told.sizes[BUSY]:
        return UNREADY
    if token < 0 or token >= len(told.tokens.start) - 1:
        return UNREADY
    spot = np.int64(told.places[place, SPOT])
    node, held = np.int64(told.places[place, NODE]), np.int64(told.places[place, SET])
    first, last = np.int64(told.tokens.start[token]), np.int64(told.tokens.start[token + 1])
    if not has_space(told, last - first):
        return FULL
    if told.spots[spot, FLAGS] & LOOPS and told.spelt.is_plain[token]:
        if node != NONE:
            node = extended(told, node, told.tokens.data, first, last)
        return FIRST_FLAT + interned_place(told, spot, node, held)
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
        return begun
    if not told.spots[after, FLAGS] & DIFFERS:
        node = np.int64(NONE)
    elif begun == NONE:
        node = extended(told, node, told.tokens.data, first, last)
    else:
        node = extended(told, np.int64(told.sets[held, ROOT]), told.tokens.data, first + begun, last)
    return FIRST_FLAT + interned_place(told, after, node, held)
