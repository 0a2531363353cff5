"""The chart: hash-consed Earley item sets over a graph of byte edges and calls, as integers on arrays.

A state is a set of items (graph node, origin, count). The origin tells where to return when the item's rule is
complete:
it is the number of a *return set*, the set of call entries (rule, return node, count, origin) that were open when the
rule was predicted. Return sets are interned by content. So two prefixes with the same open calls share their origins,
and with the same items they are the same state. An item predicted inside its own state has the origin SELF, for the
state's own return set; this keeps left recursion finite. Tail calls are flattened: an entry that would return to the
end of a rule is replaced by the entries that the rule itself returns to, so right recursion does not grow the chart.

Sources: J. Earley, "An efficient context-free parsing algorithm" (1970); J. Leo, "A general context-free
parsing algorithm running in linear time on every LR(k) grammar" (1991) for the tail calls.

Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Int
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit

# Columns of Graph.nodes, and flags; only guides/graph/graph.py uses LOOKED.
EDGE_LO, EDGE_HI, LINK_LO, LINK_HI, FLAGS, RULE, COUNTER, SPAN = range(8)
FINAL, LAZY, TAIL, LOOKED = 1, 2, 4, 8
# Columns of edges, links and counters, and kinds of links.
EDGE_FIRST, EDGE_LAST, EDGE_TARGET = range(3)
LINK_KIND, LINK_TARGET, LINK_ARGUMENT = range(3)
LEAST, GREATEST = range(2)
EPSILON, CALL, INCREMENT, LEAVE, GUARD = range(5)
# Columns of Chart.states and Chart.return_sets (return sets: the first two and CANON). KEPT: -1 until the number is
# handed out to a caller, then 1; 0 once it has not been handed out for some time. PARENT, FIRST and LAST: the state
# before it, and the token's bytes that lead from there (compaction.py).
ROW, SIGNATURE, KEPT, PARENT, FIRST, LAST = 2, 3, 4, 5, 6, 7
STATE = 8
CANON = 2
# PARENT of a state without a recorded way, and of one that is never evicted; HI of an evicted state.
UNSET, PINNED, EVICTED = -1, -2, -2
# Entries of Chart.sizes.
STATES, RETURN_SETS, SIGNATURES, ROWS, MISSING, STAMP, HORIZON = range(1, 8)
# Origins. The return sets ROOT, which ends the text, and 1, the empty one, are never removed.
SELF, ROOT, RESERVED = -1, 0, 2
# Words of a state: return set, whether it is accepting, three for each item. Words of a return set: four per entry.
OWN_RETURN_SET, ACCEPTING, HEADER = range(3)
ITEM_NODE, ITEM_ORIGIN, ITEM_COUNT, ITEM = range(4)
ENTRY_RULE, ENTRY_TARGET, ENTRY_COUNT, ENTRY_ORIGIN, ENTRY = range(5)
# Columns of Graph.spans and of Chart.seen.
SPAN_LOW, SPAN_HIGH, SPAN_LEADS = range(3)
SEEN_STAMP, SEEN_AT = range(2)
# The last word of a signature.
OF_RETURN_SET, OF_STATE = -2, -3
UNBOUNDED = 2**31 - 1


class GraphArrays(Arrays):
    """A graph of byte edges and links, for kernels.

    nodes: int32 [n, 8], columns EDGE_LO ... SPAN
    edges: int32 [n, 3], inclusive byte range and target
    links: int32 [n, 3], kind, target, argument (CALL: the return node; INCREMENT and LEAVE: the counter;
    EPSILON: a counter that must be below its greatest count, or 0; GUARD: a row of guards)
    counters: int32 [n, 2], least and greatest count; counter 0 means none. A greatest count below 0 marks a *set*: the
    count of an item is a set of bits then, and the greatest count is -1 - its row in Costs.weights. The least count is
    the bits that must be set at the end. In a *large set*, whose count is the number of a set in Chart.sets, the least
    count is -1 - n if the first n bits must be set
    guards: int32 [n, 4], for links between nodes of a set: bits that must be set, bits of which one must be missing (0
    for no such condition), bits that are kept, bits that are added; for large sets see interning.py
    spans: uint64 [n, 3], sets of characters (ASCII in two words, then lead bytes as in Chart.loops): from a node with
    span k > 0 every text of these characters can be read and continued; span 0 promises nothing
    """

    nodes: Table[np.int32]
    edges: Table[np.int32]
    links: Table[np.int32]
    counters: Table[np.int32]
    guards: Table[np.int32]
    spans: Table[np.uint64]


class Chart(Arrays):
    """All states met so far, as described above; docs/charts.md says when arrays are reallocated.

    words: int32 [w], the contents of states, return sets and signatures
    states, return_sets, signatures: int32 [n, STATE | 3 | 2], spans of words, and further columns
    state_index, return_set_index, signature_index: int32 [2**k], open-addressing hash tables of numbers, -1 free
    rows: int32 [n, 256], transition rows; loops: uint64 [n, 4], their loops, see kernels/chart/rows.py
    memo: int32 [2**k, MEMO_HEADER + 3 MEMO_ITEMS], states by unclosed items, see kernels/chart/rows.py
    sets: int32 [n, 2], spans of set_words, the contents of large sets; set_index, set_sizes: as for the others
    sizes: int64 [12], numbers in use, see above and kernels/chart/interning.py
    missing: int32 [256], the lazy nodes that were reached, for EXPAND
    meter: int64 [3], of the call, see kernels/answers.py
    scratch: items, work, leaves: int32 [s, 3]; entries: int32 [s, 6], done: int32 [s] and seen: int32 [8s, 2], see
    kernels/chart/return_sets.py; buffer: int32 [4s + 8]
    """

    words: Vector[np.int32]
    states: Table[np.int32]
    return_sets: Table[np.int32]
    signatures: Table[np.int32]
    state_index: Vector[np.int32]
    return_set_index: Vector[np.int32]
    signature_index: Vector[np.int32]
    rows: Table[np.int32]
    loops: Table[np.uint64]
    memo: Table[np.int32]
    set_words: Vector[np.int32]
    sets: Table[np.int32]
    set_index: Vector[np.int32]
    set_sizes: Vector[np.int64]
    sizes: Vector[np.int64]
    missing: Vector[np.int32]
    meter: Vector[np.int64]
    items: Table[np.int32]
    work: Table[np.int32]
    leaves: Table[np.int32]
    entries: Table[np.int32]
    done: Vector[np.int32]
    seen: Table[np.int32]
    buffer: Vector[np.int32]


@inner_njit
def is_set(graph: GraphArrays, counter: Int) -> bool:
    """Test whether a counter holds a set of bits."""
    return graph.counters[counter, GREATEST] < 0


@inner_njit
def is_large(graph: GraphArrays, counter: Int) -> bool:
    """Test whether a counter holds the number of a set of bits."""
    return graph.counters[counter, GREATEST] < 0 and graph.counters[counter, LEAST] < 0
