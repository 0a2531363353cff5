"""Which lazy rules are defined before they are reached: small ones, of which some will be reached soon.

Most of what an expansion takes is to begin, so several at once take little longer than one; and the names of a member
are met, in most texts, with those of its siblings.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from ...errors import LimitError
from ..limits import Limits, Meter
from .later import Named

NEAR = 8
"""Up to how far from a rule that is reached its siblings are looked for."""
WEIGHT, FIRST_WEIGHT = 16, 6
"""What may be defined early, in rules of the smallest kind: beside a member, and beside what the first mask needs."""
LIMITS = Limits(work=10_000)
"""What it may take to find out how large rules are: some hundred microseconds."""


def chosen_early(
    reached: Sequence[int], offered: Sequence[int], names: Mapping[int, Named], lazy: Container[int]
) -> tuple[int, ...]:
    """Rules to be defined with those that are reached.

    offered: rules that these lead to; names: the rules by their starts; lazy: those that are not defined yet. What is
    too large to find out about is left to the time when it is reached, if ever.
    """
    members = [node for node in reached if node in names and names[node].has_siblings]
    left = WEIGHT if members else FIRST_WEIGHT
    candidates = {node: None for member in members for node in _siblings(member, names, lazy)}
    candidates.update(dict.fromkeys(node for node in offered if node in lazy))
    if not candidates:
        return ()
    found: list[int] = []
    with Meter(LIMITS):
        try:
            for node in list(candidates)[:left]:
                weight = names[node].weight()
                if weight <= left:
                    found.append(node)
                    left -= weight
        except LimitError:
            pass
    return tuple(found)


def _siblings(member: int, names: Container[int], lazy: Container[int]) -> Iterator[int]:
    """The lazy rules that were made right after a rule, then those before it, the nearest first."""
    for step in (1, -1):
        for sibling in range(member + step, member + (NEAR + 1) * step, step):
            if sibling not in names:
                break
            if sibling in lazy:
                yield sibling
