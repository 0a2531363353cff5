"""Interning: contents of any length get numbers, equal contents the same one. Large sets of bits as numbers.

A large set, the count of an item where its bits exceed one word, is interned as its counter followed by its bits, BITS
in a word, without empty words at the end. The empty set is number 0 and has no words. A guard of such a set has: how
many of the first bits must be set (ALL); a bit that must be missing (REFUSED - 1), or among how many of the first bits
one must be missing (-REFUSED); the bit that is added (ADDED - 1). KEPT_BITS is 0 if the set is cleared, and -n if among
the n bits from REFUSED - 1 on one must be missing.
"""

from __future__ import annotations

from ..answers import CROWDED, DEAD, FULL
from ..jit.aliases import Int, Ints, Longs
from ..jit.wide import inner_njit, njit
from .layout import Chart

# Columns of spans. A free number has no words (HI is -1); its LO is the next free number, or -1.
LO, HI = 0, 1
# Entries of sizes: words in use; FREE + kind, the first free number of a kind, or -1.
WORDS, FREE = 0, 8
# Runs of this many records are sorted by insertion, then merged.
RUN = 16


@inner_njit
def hash_words(words: Ints, lo: Int, hi: Int) -> Int:
    """Hash words[lo:hi] to a number below 2**32. Intermediates stay below 2**63, so it is the same without JIT."""
    value = 0x811C9DC5
    for i in range(lo, hi):
        value = ((value ^ (int(words[i]) & 0xFFFFFFFF)) * 0x5BD1E995) & 0xFFFFFFFF
        value ^= value >> 15
    return value


@inner_njit
def intern(words: Ints, spans: Ints, index: Ints, buffer: Ints, length: Int, sizes: Longs, kind: Int) -> Int:
    """Return the number of buffer[:length] among the spans of one kind, added if it is new. FULL without room."""
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
    """Enter the spans numbered first ... last - 1 that have words into an index, which has none of them yet."""
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
    """Sort records[:count] by their first columns; most inputs are short and nearly sorted.

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
    """Sort a few records by insertion."""
    for i in range(first + 1, last):
        j = i
        while j > first and precedes(records, j, j - 1, width):
            for k in range(width):
                records[j, k], records[j - 1, k] = records[j - 1, k], records[j, k]
            j -= 1


@inner_njit
def merge_records(records: Ints, first: Int, middle: Int, last: Int, width: Int, buffer: Ints) -> None:
    """Merge two adjacent sorted runs."""
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


BITS = 31
# Entry of Chart.set_sizes: the number of sets, including the empty one. Its other entries are as in Chart.sizes.
SETS = 1
# Columns of Graph.guards.
ALL, REFUSED, KEPT_BITS, ADDED = range(4)


@inner_njit
def bits_of(chart: Chart, number: Int, word: Int) -> Int:
    """Return one word of a set's bits."""
    at = chart.sets[number, LO] + 1 + word
    return int(chart.set_words[at]) if at < chart.sets[number, HI] else 0


@inner_njit
def has_first(chart: Chart, number: Int, count: Int) -> bool:
    """Test whether the first `count` bits are all set."""
    for word in range(count // BITS):
        if bits_of(chart, number, word) != (1 << BITS) - 1:
            return False
    rest = (1 << (count % BITS)) - 1
    return rest == 0 or bits_of(chart, number, count // BITS) & rest == rest


@inner_njit
def has_all(chart: Chart, number: Int, first: Int, count: Int) -> bool:
    """Test whether `count` bits from `first` on are all set."""
    at, end = first, first + count
    while at < end:
        here = at % BITS
        some = min(BITS - here, end - at)
        wanted = ((1 << some) - 1) << here
        if bits_of(chart, number, at // BITS) & wanted != wanted:
            return False
        at += some
    return True


@inner_njit
def with_bit(chart: Chart, counter: Int, number: Int, bit: Int) -> Int:
    """Return the number of a set with one more bit; FULL or CROWDED without room."""
    word = bit // BITS
    known = max(chart.sets[number, HI] - chart.sets[number, LO] - 1, 0)
    length = max(known, word + 1) + 1
    buffer = chart.buffer
    if length > len(buffer):
        return CROWDED
    buffer[0] = counter
    for at in range(length - 1):
        buffer[1 + at] = bits_of(chart, number, at)
    buffer[1 + word] |= 1 << (bit % BITS)
    return intern(chart.set_words, chart.sets, chart.set_index, buffer, length, chart.set_sizes, SETS)


@inner_njit
def pass_guard(chart: Chart, guard: Ints, counter: Int, number: Int) -> Int:
    """Return the number of the set after a guard; DEAD if the guard refuses it, or a code."""
    refused = guard[REFUSED]
    if refused > 0 and has_all(chart, number, refused - 1, max(1, -guard[KEPT_BITS])):
        return DEAD
    if refused < 0 and has_first(chart, number, -refused):
        return DEAD
    if not has_first(chart, number, guard[ALL]):
        return DEAD
    if guard[KEPT_BITS] == 0:
        return 0
    return with_bit(chart, counter, number, guard[ADDED] - 1) if guard[ADDED] else number
