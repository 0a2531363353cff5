"""The texts of a set of numbers in either spelling, and how long the shortest is."""

from __future__ import annotations

from ....kept import kept
from ....syntax import Node
from ...algebra.cases import Number
from ...automata.spelling import fewest_bytes
from ..form import Spelling
from .notation import number_node
from .numeral_places import fewest_bytes as fewest_on_demand
from .numeral_places import is_told_on_demand
from .plain import plain_node


def spelt_numbers(case: Number, spelling: Spelling) -> Node:
    """The texts of the numbers in a set; NOTHING if there are none."""
    return number_node(case) if spelling == "any" else plain_node(case)


@kept(4096, 8 << 20)
def fewest_number_bytes(case: Number, spelling: Spelling) -> int:
    """The length of the shortest text of a set that is not empty."""
    if is_told_on_demand(case, spelling):
        return fewest_on_demand(case, spelling)
    return fewest_bytes(spelt_numbers(case, spelling))
