"""Interning: contents of any length get numbers, equal contents the same one."""

from __future__ import annotations

from ..answers import FULL
from ..jit.aliases import Int, Ints, Longs
from ..jit.wide import inner_njit, njit

# Columns of spans. A number that was given up has no words (HI is -1); its LO is the next such number, or -1.
LO, HI = 0, 1
# Entries of sizes: the words in use; FREE + kind, the first number of a kind that may be used again, or -1.
WORDS, FREE = 0, 8
# So many records are sorted by insertion, more by merging.
RUN = 16


@inner_njit
def hash_words(words: Ints, lo: Int, hi: Int) -> Int:
    """A hash of words[lo:hi] below 2**32; the arithmetic stays below 2**63, so that it is the same without JIT."""
    value = 0x811C9DC5
    for i in range(lo, hi):
        value = ((value ^ (int(words[i]) & 0xFFFFFFFF)) * 0x5BD1E995) & 0xFFFFFFFF
        value ^= value >> 15
    return value


@inner_njit
def intern(words: Ints, spans: Ints, index: Ints, buffer: Ints, length: Int, sizes: Longs, kind: Int) -> Int:
    """The number of buffer[:length] among the spans of one kind, adding it if it is new. FULL when there is no room."""
    mask = len(index) - 1
    slot = hash_words(buffer, 0, length) & mask
    while index[slot] >= 0:
        number = index[slot]
        lo = spans[number, LO]
        if spans[number, HI] - lo == length:
            same = True
            for i in range(length):
                if words[lo + i] != buffer[i]:
                    same = False
                    break
            if same:
                return number
        slot = (slot + 1) & mask
    free = sizes[FREE + kind]
    number = free if free >= 0 else sizes[kind]
    used = sizes[WORDS]
    if number >= len(spans) or used + length > len(words) or 2 * number >= len(index):
        return FULL
    for i in range(length):
        words[used + i] = buffer[i]
    if free >= 0:
        sizes[FREE + kind] = spans[number, LO]
    else:
        sizes[kind] = number + 1
    spans[number, :] = -1
    spans[number, LO] = used
    spans[number, HI] = used + length
    index[slot] = number
    sizes[WORDS] = used + length
    return number


@njit
def reindex(words: Ints, spans: Ints, index: Ints, first: Int, last: Int) -> None:
    """Enter the spans numbered first ... last - 1 into an index, as far as they have words; none is there yet."""
    mask = len(index) - 1
    for number in range(first, last):
        if spans[number, HI] <= spans[number, LO]:
            continue
        slot = hash_words(words, spans[number, LO], spans[number, HI]) & mask
        while index[slot] >= 0:
            slot = (slot + 1) & mask
        index[slot] = number


@inner_njit
def sort_records(records: Ints, count: Int, width: Int, buffer: Ints) -> None:
    """Sort records[:count] by their first columns; they are mostly few, and nearly sorted.

    buffer: int32, room for half of them
    """
    for lo in range(0, count, RUN):
        insert_records(records, lo, min(lo + RUN, count), width)
    run = RUN
    while run < count:
        for lo in range(0, count - run, 2 * run):
            merge_records(records, lo, lo + run, min(lo + 2 * run, count), width, buffer)
        run *= 2


@inner_njit
def insert_records(records: Ints, first: Int, last: Int, width: Int) -> None:
    """Sort a few records."""
    for i in range(first + 1, last):
        j = i
        while j > first and precedes(records, j, j - 1, width):
            for k in range(width):
                records[j, k], records[j - 1, k] = records[j - 1, k], records[j, k]
            j -= 1


@inner_njit
def merge_records(records: Ints, first: Int, middle: Int, last: Int, width: Int, buffer: Ints) -> None:
    """Sort records of which both halves are sorted."""
    if not precedes(records, middle, middle - 1, width):
        return
    for i in range(first, middle):
        for k in range(width):
            buffer[width * (i - first) + k] = records[i, k]
    at, left, right, count = first, 0, middle, middle - first
    while left < count:
        takes_right = False
        if right < last:
            for k in range(width):
                if records[right, k] != buffer[width * left + k]:
                    takes_right = records[right, k] < buffer[width * left + k]
                    break
        for k in range(width):
            records[at, k] = records[right, k] if takes_right else buffer[width * left + k]
        if takes_right:
            right += 1
        else:
            left += 1
        at += 1


@inner_njit
def precedes(records: Ints, a: Int, b: Int, width: Int) -> bool:
    for k in range(width):
        if records[a, k] != records[b, k]:
            return records[a, k] < records[b, k]
    return False
