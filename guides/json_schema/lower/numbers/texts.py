"""The texts of a set of numbers in either spelling: as pieces of graph, and how long the shortest is."""

from __future__ import annotations

from functools import lru_cache

from ....graph.lowering import Lowering
from ....syntax import Alternation
from ...algebra.cases import Number
from ...automata.spelling import fewest_bytes
from ..form import Spelling
from .notation import number_node
from .plain import plain_texts


def lower_number(lowering: Lowering, case: Number, spelling: Spelling, target: int) -> int | None:
    """The entry of the texts of a set before `target`; None if there are none. The graph's counter must be 0."""
    if spelling == "any":
        return lowering.lower(number_node(case), target)
    texts = plain_texts(case)
    entries = [lowering.lower(Alternation(texts.nodes), target)] if texts.nodes else []
    for part in texts.counted:
        entry = lowering.counted_table(part.table, part.most, target)
        entries.append(lowering.graph.literal(b"-", entry) if part.minus else entry)
    return lowering.joined(entries)


@lru_cache(maxsize=4096)
def fewest_number_bytes(case: Number, spelling: Spelling) -> int:
    """The length of the shortest text of a set that is not empty."""
    if spelling == "any":
        return fewest_bytes(number_node(case))
    texts = plain_texts(case)
    lengths = [fewest_bytes(node) for node in texts.nodes]
    return min(lengths + [part.minus + fewest_bytes(part.table) for part in texts.counted])
