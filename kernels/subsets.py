"""Subset construction: position automata that run side by side are made deterministic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .answers import DEAD, EXHAUSTED, FULL
from .jit.aliases import Bytes, Int, Ints, Longs, Words
from .jit.arrays import Arrays, Table, Vector
from .jit.wide import inner_njit, njit

Rows = NDArray[np.integer[Any]]


@inner_njit
def enter_first(rows: Rows, index: Ints) -> None:
    """Enter row 0 into the hash index: int32 [2**k], more than twice as long as there are rows, -1 for empty slots."""
    index[hash_row(rows, 0) & (len(index) - 1)] = 0


@inner_njit
def number_of(rows: Rows, at: Int, index: Ints) -> Int:
    """Return the number of the row equal to row `at`; enter `at` if there is none."""
    mask = len(index) - 1
    slot = hash_row(rows, at) & mask
    while index[slot] >= 0:
        if is_same(rows, index[slot], at):
            return index[slot]
        slot = (slot + 1) & mask
    index[slot] = at
    return at


@inner_njit
def is_same(rows: Rows, one: Int, other: Int) -> bool:
    same = True
    for column in range(rows.shape[1]):
        same = same and rows[one, column] == rows[other, column]
    return same


@inner_njit
def hash_row(rows: Rows, at: Int) -> Int:
    """Hash a row to a number below 2**32, skipping zeros, which fill long rows. The result is the same without JIT."""
    value = 0x811C9DC5
    for column in range(rows.shape[1]):
        if rows[at, column] != 0:
            value ^= (int(rows[at, column]) ^ column * 0x9E3779B1) & 0xFFFFFFFF
            value = (value * 0x5BD1E995) & 0xFFFFFFFF
            value ^= value >> 15
    return value


BITS = 32
# Entries of progress: states, states whose edges are done, steps taken, and the maximum of steps in a call.
COUNT, READ, STEPS, MAX_STEPS = range(4)


class Positions(Arrays):
    """Position automata of several conditions, each with 32-bit words of its own.

    follow: uint32 [32 * words, widest], positions that may follow a position, in the words of its automaton
    of_atom: uint32 [atoms, words], positions that read an atom; last: uint32 [words], final positions
    everything: uint32 [words], positions from which every text is accepted
    first: int32 [conditions + 1], first word of each; whole: int32 [conditions], one of `everything`, or -1
    """

    follow: Table[np.uint32]
    of_atom: Table[np.uint32]
    last: Vector[np.uint32]
    everything: Vector[np.uint32]
    first: Vector[np.int32]
    whole: Vector[np.int32]


@njit
def start_subsets(read: Positions, states: Words, index: Ints) -> None:
    """Write row 0, the start state, and enter it into the index."""
    for condition in range(len(read.whole)):
        first, end = read.first[condition], read.first[condition + 1]
        for word in range(first, end):
            states[0, word] = read.follow[first * BITS, word - first]
        states[0, len(read.last) + condition] = read.last[first] & 1
    enter_first(states, index)


@njit
def find_subsets(read: Positions, wanted: Bytes, states: Words, edges: Ints, index: Ints, progress: Longs) -> Int:
    """Find the states reached from those that were read. Return 0 at the end, else FULL or EXHAUSTED.

    States that a one-step check shows to be dead are left out: some condition can no longer be met as wanted.
    wanted: uint8 [conditions], 1 where the condition must accept the text, 0 where it must not
    states: uint32 [room, words + conditions], positions that may follow, and which conditions accept the text so far
    edges: int32 [room, atoms], output: the state after each atom, or DEAD
    index: int32 [2**k], more than twice the room, -1 for empty slots; progress: int64 [4], see above
    """
    count = progress[COUNT]
    at = progress[READ]
    answer = 0
    busy = np.empty(len(read.last), np.int32)
    starts = np.empty(len(wanted) + 1, np.int32)
    while at < count:
        if count + len(read.of_atom) >= len(states):
            answer = FULL
            break
        if progress[STEPS] > progress[MAX_STEPS]:
            answer = EXHAUSTED
            break
        list_words(read, states, at, busy, starts)
        progress[STEPS] += len(read.of_atom) * len(busy)
        for atom in range(len(read.of_atom)):
            edges[at, atom] = DEAD
            if follow_atom(read, wanted, states, at, atom, count, busy, starts, progress):
                number = number_of(states, count, index)
                edges[at, atom] = number
                count = max(count, number + 1)
        at += 1
    progress[COUNT] = count
    progress[READ] = at
    return answer


@inner_njit
def list_words(read: Positions, states: Words, at: Int, busy: Ints, starts: Ints) -> None:
    """List the non-zero words of a state in `busy`, those of each condition from starts[condition] on."""
    count = 0
    for condition in range(len(starts) - 1):
        starts[condition] = count
        for word in range(read.first[condition], read.first[condition + 1]):
            if states[at, word] != 0:
                busy[count] = word
                count += 1
    starts[len(starts) - 1] = count


@inner_njit
def follow_atom(
    read: Positions,
    wanted: Bytes,
    states: Words,
    at: Int,
    atom: Int,
    to: Int,
    busy: Ints,
    starts: Ints,
    progress: Longs,
) -> bool:
    """Write the state after an atom to row `to`. Return False if a condition can no longer be met as wanted."""
    for word in range(states.shape[1]):
        states[to, word] = 0
    for condition in range(len(wanted)):
        first, end = read.first[condition], read.first[condition + 1]
        accepts, is_whole, is_dead = False, False, True
        for place in range(starts[condition], starts[condition + 1]):
            word = busy[place]
            reached = states[at, word] & read.of_atom[atom, word]
            is_dead = is_dead and reached == 0
            accepts = accepts or reached & read.last[word] != 0
            is_whole = is_whole or reached & read.everything[word] != 0
        if wanted[condition] and is_dead:
            return False
        if is_whole:
            accepts = True
            add_following(read, read.whole[condition], states, to, first, end)
        elif not is_dead:
            for place in range(starts[condition], starts[condition + 1]):
                word = busy[place]
                reached = states[at, word] & read.of_atom[atom, word]
                position = word * BITS
                while reached != 0:
                    if reached & 1:
                        add_following(read, position, states, to, first, end)
                        progress[STEPS] += end - first
                    reached >>= 1
                    position += 1
        states[to, len(read.last) + condition] = 1 if accepts else 0
        if not wanted[condition] and accepts and accepts_everything(read, condition, states, to):
            return False
    return True


@inner_njit
def add_following(read: Positions, position: Int, states: Words, to: Int, first: Int, end: Int) -> None:
    for word in range(first, end):
        states[to, word] |= read.follow[position, word - first]


@inner_njit
def accepts_everything(read: Positions, condition: Int, states: Words, at: Int) -> bool:
    """Test whether a condition accepts every continuation of an accepted text."""
    if read.whole[condition] < 0:
        return False
    first = read.first[condition]
    for word in range(first, read.first[condition + 1]):
        if states[at, word] != read.follow[read.whole[condition], word - first]:
            return False
    return True
