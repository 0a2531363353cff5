"""Masks of states that loop: tokens that stay in the loop come from a table, tokens that leave it from short walks.

Inside a JSON string nearly every token is allowed, and the tokens that stay inside the string depend on the set of
looping characters alone. A `LoopSlice` stores that part once per vocabulary and set: the tokens that stay, ordered by
the number of characters that they begin, and the trie nodes at which tokens leave, by the byte with which they leave.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, EXPAND, spend
from ..chart.interning import HI, LO, intern
from ..chart.layout import COUNTER, HEADER, ITEM, ITEM_COUNT, ITEM_NODE, ROW, STATES, Chart, GraphArrays, is_set
from ..chart.rows import (
    ASCII_HIGH,
    ASCII_LOW,
    FIRST_LEAD,
    NO_SHIFT,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    SHIFTED,
    fill_row,
    is_shift,
    lacking,
    open_row,
    step,
)
from ..jit.aliases import Bits, Bytes, Int, Ints, Words
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from ..utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LEAD, utf8_step
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
    form_loops,
    loop_leads,
    loop_target,
    refuse,
)
from .walk import leave


@njit
def divide(trie: TokenTrie, loop: Bits, stay_chars: Ints, exit_chars: Ints) -> None:
    """Write for each node the characters begun, to stay_chars or to exit_chars (int32 [n]); -1 for neither.

    loop: uint64 [3], the looping ASCII bytes in two words, and the looping lead bytes, as in Chart.loops. A node stays
    if all its bytes stay in the loop. It is an exit if only its last byte leaves, at a character boundary.
    """
    stay_chars[:] = -1
    exit_chars[:] = -1
    within = np.zeros(trie.deepest + 1, np.int32)
    chars_begun = np.zeros(trie.deepest + 1, np.int32)
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
                exit_chars[node] = chars_begun[level - 1]
            node = trie.skip[node]
            continue
        within[level] = after
        chars_begun[level] = chars_begun[level - 1] + (1 if place == 0 else 0)
        stay_chars[node] = chars_begun[level]
        node += 1


@njit
def list_exits(trie: TokenTrie, exit_chars: Ints, exits: Ints, start: Ints) -> Int:
    """Write the nodes with exit_chars >= 0 to `exits`, ordered by byte and then by characters. Return their number.

    exits: int32 [n]; start: int32 [257], the first exit of each byte
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
    """Write the tokens of nodes with stay_chars >= 0 to `ids`, and these to `chars`, ascending. Return their number.

    ids, chars: int32 [tokens]; row: uint32 [words], their mask
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
    """Set the flags of nodes other than the root with an exit in their subtree; on_way: uint8 [n], zeros before."""
    for at in range(len(exits)):
        node: Int = exits[at]
        while node > 0 and on_way[node] == 0:
            on_way[node] = 1
            node = parents[node]


@njit
def merge_tails(
    trie: Branches, exits: Ints, start: Ints, merged: Bytes, tails: Branches, members: Ints, bounds: Ints
) -> Int:
    """Merge the subtrees of exits with the same byte into a trie by levels, whose root has a child for each byte.

    exits: int32 [m], nodes of Branches, those of byte b from start[b] to start[b + 1]; merged: uint8 [256], 1 for
    wanted bytes; tails: output arrays, `first` one longer. Returns the number of nodes
    members: int32 [n], bounds: int32 [n + 1], scratch: the nodes of Branches that each node merges
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
    """Add the children of a node of the tails, ordered by byte. Return the new number of nodes.

    places: int32 [257], zeros before and after
    """
    if bounds[node + 1] - bounds[node] == 1:  # the usual case: its children are in order already
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
    """Number the tokens of the tails so that those of a subtree are adjacent, and compute `below`."""
    tokens, first, below = tails.tokens, tails.first, tails.below
    for node in range(count - 1, -1, -1):
        own_tokens = 0
        for word in range(below.shape[1]):
            below[node, word] = 0
        for at in range(bounds[node], bounds[node + 1]):
            member = members[at]
            own_tokens += trie.tokens[member, OWN_END] - trie.tokens[member, OWN]
            for word in (BELOW_LOW, BELOW_HIGH, BELOW_LEADS):
                below[node, word] |= trie.below[member, word]
            below[node, BEGUN] = max(below[node, BEGUN], trie.below[member, BEGUN])
        tokens[node, OWN_END] = tokens[node, SUBTREE_END] = own_tokens
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


UNSLICEABLE, ENDLESS = 1, 2
# Columns of LoopSlice.way.
NODE, NEXT, IS_EXIT, BYTE, DEPTH = range(5)


class LoopSlice(Arrays):
    """The tokens of a vocabulary, divided by one set of looping characters.

    loop: uint64 [3], the ASCII characters in two words, and the lead bytes, as in Chart.loops
    row: uint32 [words], mask of the tokens that stay; ids, chars: int32 [n], these by the number of characters begun
    exit_node, exit_chars: int32 [m], nodes of Branches at which tokens leave, and the characters before, ordered by
    byte and then characters; exit_reach: int32 [m], length of the longest token there; exit_start: int32 [257], the
    first exit of each byte
    way: int32 [k, 5], the nodes on paths to exits, in preorder: node of Branches, index in `way` after its subtree,
    whether it is an exit, its byte and its depth (copied here, since the trie exceeds the caches). Empty if there are
    too many exits
    tails: trie of the tokens' remainders from the leaving byte on; tail_root: int32 [256], its node for each byte, -1
    if there is none, or if too many tokens leave by it
    """

    loop: Vector[np.uint64]
    row: Vector[np.uint32]
    ids: Vector[np.int32]
    chars: Vector[np.int32]
    exit_node: Vector[np.int32]
    exit_chars: Vector[np.int32]
    exit_reach: Vector[np.int32]
    exit_start: Vector[np.int32]
    way: Table[np.int32]
    tails: Branches
    tail_root: Vector[np.int32]


@inner_njit
def stay(loop_slice: LoopSlice, room: Int, out: Words) -> None:
    """Allow the tokens that stay in the loop and begin at most `room` characters."""
    count = len(loop_slice.chars)
    if count == 0:
        return
    fitting = count
    if loop_slice.chars[count - 1] > room:
        fitting = np.searchsorted(loop_slice.chars, room, side="right")
    if 2 * fitting < count:
        for at in range(fitting):
            token = loop_slice.ids[at]
            out[token >> 5] |= np.uint32(1) << np.uint32(token & 31)
        return
    out |= loop_slice.row
    for at in range(fitting, count):
        token = loop_slice.ids[at]
        out[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@inner_njit
def next_in_loop(graph: GraphArrays, chart: Chart, row: Int, state: Int) -> Int:
    """Return the state after one more looping character, if it is the same for all of them; -1 if not, or a code."""
    target = loop_target(chart, row)
    if target < 0 or target == state:
        return target
    after = fill_row(graph, chart, target)
    if after < 0:
        return after
    shift = is_shift(graph, chart, state, target)
    if shift == SHIFTED or chart.loops[after, ASCII_LOW] | chart.loops[after, ASCII_HIGH] == 0:
        return target
    same = (
        chart.loops[after, ASCII_LOW] == chart.loops[row, ASCII_LOW]
        and chart.loops[after, ASCII_HIGH] == chart.loops[row, ASCII_HIGH]
    )
    if shift == NO_SHIFT or not same:
        return -1
    before, now = loop_leads(graph, chart, state, row), loop_leads(graph, chart, target, after)
    if before < 0 or now < 0:
        return min(before, now)
    return target if before == now else -1


@inner_njit
def goes_on(chart: Chart, row: Int, full: Int) -> bool:
    """Test whether characters that loop in `row` lead on from row `full`, where the loop has no more room."""
    for byte in range(256):
        low = chart.loops[row, byte >> 6] >> np.uint64(byte & 63) & np.uint64(1) if byte < 128 else np.uint64(1)
        if low and chart.rows[full, byte] >= 0:
            return True
    return False


@inner_njit
def loops_behind(graph: GraphArrays, chart: Chart, loop_slice: LoopSlice, row: Int) -> Int:
    """Return 1 if all characters of a slice lead from a row to one state that loops over them, else 0; or a code."""
    loop, target = loop_slice.loop, DEAD
    for byte in range(FIRST_NEXT):
        if loop[byte >> 6] >> np.uint64(byte & 63) & np.uint64(1):
            after = chart.rows[row, byte]
            if after < 0 or (target >= 0 and after != target):
                return 0
            target = after
    if target < 0:
        return 0
    behind = fill_row(graph, chart, target)
    leads = loop_leads(graph, chart, target, behind) if behind >= 0 else behind
    if leads < 0:
        return leads
    others = loop[0] & ~chart.loops[behind, ASCII_LOW] | loop[1] & ~chart.loops[behind, ASCII_HIGH]
    if others | loop[2] & ~np.uint64(leads) or loop_target(chart, behind) != target:
        return 0
    for form in range(len(FORMS)):
        previous = PENDING
        for lead in range(FORMS[form, LEAD], FORMS[form, LAST_LEAD] + 1):
            after = chart.rows[row, lead]
            if loop[2] >> np.uint64(lead - FIRST_LEAD) & np.uint64(1) and after != previous:
                loops = form_loops(graph, chart, after, form, target) if after >= 0 else 0
                if loops != 1:
                    return loops
                previous = after
    return 1


@inner_njit
def shifted(graph: GraphArrays, chart: Chart, state: Int, more: Int) -> Int:
    """Return the state with every count of `state` raised by `more`, or a code."""
    lo, length = chart.states[state, LO], chart.states[state, HI] - chart.states[state, LO]
    words, buffer = chart.words, chart.buffer
    for at in range(length):
        buffer[at] = words[lo + at]
    for at in range(HEADER, length, ITEM):
        counter = graph.nodes[buffer[at + ITEM_NODE], COUNTER]
        if counter and not is_set(graph, counter):
            buffer[at + ITEM_COUNT] += more
    return intern(words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@inner_njit
def row_shifted(graph: GraphArrays, chart: Chart, state: Int, more: Int) -> Int:
    """Return the complete row of the state with every count of `state` raised by `more`, or a code."""
    other = shifted(graph, chart, state, more)
    return fill_row(graph, chart, other) if other >= 0 else other


@inner_njit
def row_at(graph: GraphArrays, chart: Chart, rows: Ints, state: Int, place: Int, room: Int, settled: Int) -> Int:
    """Return the row after `place` looping characters, settled <= place <= room, given the state after `settled`.

    Until the loop is full only the counts change. `rows` caches the results. May return a code.
    """
    if rows[place] < 0:
        if place == room:
            last = row_shifted(graph, chart, state, place - 1 - settled)
            state = loop_target(chart, last) if last >= 0 else last
            rows[place] = fill_row(graph, chart, state) if state >= 0 else state
        else:
            rows[place] = row_shifted(graph, chart, state, place - settled)
    return rows[place]


@inner_njit
def count_on(graph: GraphArrays, chart: Chart, rows: Ints, known: Int, wanted: Int, state: Int) -> Int:
    """Extend rows[: known + 1], by number of looping characters, to `wanted`. Return the last state, -1, or a code."""
    while known < wanted:
        state = next_in_loop(graph, chart, rows[known], state)
        if state < 0:
            return state
        known += 1
        rows[known] = fill_row(graph, chart, state)
        if rows[known] < 0:
            return rows[known]
    return state


@inner_njit
def settle(graph: GraphArrays, chart: Chart, state: Int, rows: Ints) -> tuple[Int, Int, Int, Int, Int]:
    """Follow a loop until it has its least number of characters, for `walk_slice`; write the rows on the way to `rows`.

    Returns 0, UNSLICEABLE if the loop is not uniform, or a code; then, behind 0 only, the characters that it has room
    for, those to its least number, the state behind these, and the row of the full loop, DEAD if no token fills it.
    rows: int32 [longest token + 1], output, -1 where not computed
    """
    rows[:] = -1
    longest = len(rows) - 1
    row = fill_row(graph, chart, state)
    if row < 0:
        return row, 0, 0, state, DEAD
    room = np.int64(chart.loops[row, ROOM] >> ROOM_SHIFT)
    rows[0] = row
    settled = min(lacking(graph, chart, state), room, longest)
    state = count_on(graph, chart, rows, 0, settled, state)
    if state < 0:
        return UNSLICEABLE if state == -1 else state, room, settled, state, DEAD
    target = loop_target(chart, rows[settled])
    if target >= 0 and target != state and is_shift(graph, chart, state, target) != SHIFTED:
        return UNSLICEABLE, room, settled, state, DEAD
    full = DEAD
    if room < longest:
        full = row_at(graph, chart, rows, state, room, room, settled)
        if full < 0:
            return UNSLICEABLE if full == DEAD else full, room, settled, state, DEAD
    return 0, room, settled, state, full


@inner_njit
def walk_slice(graph: GraphArrays, chart: Chart, trie: Branches, loop_slice: LoopSlice, state: Int, out: Words) -> Int:
    """Compute the mask of a looping state. Return 0, UNSLICEABLE if its loop is not uniform, or a code.

    Return ENDLESS, with nothing written, where a count becomes full and the characters loop on without it.

    Once the loop has its least number of characters, tokens too short to fill it do not depend on how many more it has.
    Exits are walked together then; other exits are walked one by one.
    """
    rows = np.empty(trie.deepest + 1, np.int32)
    code, room, settled, state, full = settle(graph, chart, state, rows)
    if code != 0:
        return code
    if full >= 0 and goes_on(chart, rows[0], full):
        ever = loops_behind(graph, chart, loop_slice, full)
        return ever if ever < 0 else ENDLESS if ever else UNSLICEABLE
    for byte in range(256):
        common = chart.rows[rows[settled], byte]
        if common < 0 and not leaves_elsewhere(chart, rows, settled, full, byte):
            continue
        code = walk_exits(graph, chart, trie, loop_slice, rows, state, byte, room, settled, out)
        if code < 0:
            return UNSLICEABLE if code == DEAD else code
    stay(loop_slice, room, out)
    return 0


@inner_njit
def leaves_elsewhere(chart: Chart, rows: Ints, settled: Int, full: Int, byte: Int) -> bool:
    """Test whether a byte leads on from a row before rows[settled], or from the row of a full loop, if there is one."""
    if full >= 0 and chart.rows[full, byte] >= 0:
        return True
    for place in range(settled):  # noqa: SIM110
        if chart.rows[rows[place], byte] >= 0:
            return True
    return False


@inner_njit
def walk_exits(
    graph: GraphArrays,
    chart: Chart,
    trie: Branches,
    loop_slice: LoopSlice,
    rows: Ints,
    state: Int,
    byte: Int,
    room: Int,
    settled: Int,
    out: Words,
) -> Int:
    """Allow the tokens that leave a loop by a byte, see `walk_slice`. 0, DEAD if the loop is not uniform, or a code."""
    first, end = loop_slice.exit_start[byte], loop_slice.exit_start[byte + 1]
    root, common = loop_slice.tail_root[byte], chart.rows[rows[settled], byte]
    if first == end:
        return 0
    if spend(chart, end - first) < 0:
        return EXHAUSTED
    together = common >= 0 and root >= 0
    if together:
        code = leave(graph, chart, loop_slice.tails, root, common, out)
        if code < 0 or (settled == 0 and room >= trie.deepest):
            return min(code, 0)
    for at in range(first, end):
        node, place, after = loop_slice.exit_node[at], loop_slice.exit_chars[at], common
        if place < settled or loop_slice.exit_reach[at] > room:
            if together:
                refuse(trie, trie.tokens[node, OWN], trie.tokens[node, SUBTREE_END], out)
            if place > room:
                continue
            there = rows[place]
            if place > settled:
                there = row_at(graph, chart, rows, state, place, room, settled)
                if there < 0:
                    return there
            after = chart.rows[there, byte]
        elif together:
            continue
        if after >= 0:
            code = leave(graph, chart, trie, node, after, out)
            if code < 0:
                return code
    return 0


@inner_njit
def follow_way(graph: GraphArrays, chart: Chart, trie: Branches, way: Ints, state: Int, afters: Ints) -> Int:
    """Write the state at each node of `way` from `state` (DEAD where none) to afters (int32 [k]); 0 or a code."""
    if spend(chart, len(way)) < 0:
        return EXHAUSTED
    afters[:] = DEAD
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    stack, passed = np.empty(trie.deepest + 1, np.int32), np.empty(trie.deepest + 1, np.int32)
    stack[0], passed[0] = row, state
    missing = 0
    at: Int = 0
    while at < len(way):
        level: Int = way[at, DEPTH]
        here: Int = stack[level - 1]
        byte: Int = way[at, BYTE]
        after = chart.rows[here, byte]
        if after == PENDING:
            after = step(graph, chart, passed[level - 1], here, byte)
        row = DEAD
        if after >= 0 and not way[at, IS_EXIT]:
            row = chart.states[after, ROW]
            if row < 0:
                row = open_row(graph, chart, after)
        if after == EXPAND or row == EXPAND:
            missing = EXPAND
            after = row = DEAD
        elif after < DEAD or row < DEAD:
            return min(after, row)
        afters[at] = after
        if row < 0:
            at = way[at, NEXT]
            continue
        stack[level], passed[level] = row, after
        at += 1
    return missing


@inner_njit
def majorities(way: Ints, afters: Ints) -> Ints:
    """Return for each byte the majority state of its exits, if there is one: int32 [256] (Boyer and Moore)."""
    found = np.full(256, DEAD, np.int32)
    votes = np.zeros(256, np.int32)
    for at in range(len(way)):
        if way[at, IS_EXIT]:
            byte = way[at, BYTE]
            if votes[byte] == 0:
                found[byte] = afters[at]
            votes[byte] += 1 if found[byte] == afters[at] else -1
    return found


@inner_njit
def walk_span(graph: GraphArrays, chart: Chart, trie: Branches, loop_slice: LoopSlice, state: Int, out: Words) -> Int:
    """Compute the mask of a state that can read every text of the slice's characters. 0, UNSLICEABLE, or a code.

    The tails of all exits with one byte are walked together, from the state that most of them lead to; exits to other
    states are walked one by one.
    """
    way = loop_slice.way
    if len(way) == 0 and len(loop_slice.exit_node) > 0:
        return UNSLICEABLE
    afters = np.empty(len(way), np.int32)
    missing = follow_way(graph, chart, trie, way, state, afters)
    if missing < 0:
        return missing
    common = majorities(way, afters)
    for byte in range(256):
        if loop_slice.tail_root[byte] < 0:
            common[byte] = DEAD
        if common[byte] >= 0:
            code = leave(graph, chart, loop_slice.tails, loop_slice.tail_root[byte], common[byte], out)
            missing = min(missing, code)
            if missing < DEAD and missing != EXPAND:
                return missing
    for at in range(len(way)):
        byte = way[at, BYTE]
        if way[at, IS_EXIT] and afters[at] != common[byte]:
            if common[byte] >= 0:
                refuse(trie, trie.tokens[way[at, NODE], OWN], trie.tokens[way[at, NODE], SUBTREE_END], out)
            if afters[at] >= 0:
                code = leave(graph, chart, trie, way[at, NODE], afters[at], out)
                missing = min(missing, code)
                if missing < DEAD and missing != EXPAND:
                    return missing
    out |= loop_slice.row
    return missing
