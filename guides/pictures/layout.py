"""Where nodes stand in a picture: in layers from left to right, with few crossings.

Source: K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures" (1981),
with layers by the distance from the start, so that no arrow leads more than one layer on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

SWEEPS = 8

Pair = tuple[int, int]


def layers(count: int, pairs: Iterable[Pair], start: int) -> list[list[int]]:
    """The nodes by their distance from the start, each layer from top to bottom; unreached nodes come first."""
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        targets[source].append(target)
    depth = {start: 0}
    queue = [start]
    for node in queue:
        for target in targets[node]:
            if target not in depth:
                depth[target] = depth[node] + 1
                queue.append(target)
    found: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in [*queue, *(node for node in range(count) if node not in depth)]:
        found[depth.get(node, 0)].append(node)
    return _uncrossed(found, targets)


def _uncrossed(found: list[list[int]], targets: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each layer ordered by the middle of a node's neighbours, forth and back a few times; the best order of all."""
    near: dict[int, set[int]] = {node: set() for layer in found for node in layer}
    for source, row in enumerate(targets):
        for target in row:
            near[source].add(target)
            near[target].add(source)
    best = found
    for sweep in range(SWEEPS):
        order = range(1, len(found)) if sweep % 2 == 0 else range(len(found) - 2, -1, -1)
        found = [list(layer) for layer in found]
        for at in order:
            place = {node: i for i, node in enumerate(found[at - 1 if sweep % 2 == 0 else at + 1])}
            middles = {node: _middle(near[node], place, i) for i, node in enumerate(found[at])}
            found[at].sort(key=middles.__getitem__)
        if crossings(found, targets) < crossings(best, targets):
            best = found
    return best


def _middle(near: set[int], place: dict[int, int], own: int) -> float:
    """The mean place of the neighbours in another layer; of a node without any its own place."""
    places = [place[other] for other in near if other in place]
    return sum(places) / len(places) if places else own


def crossings(found: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> int:
    """How many pairs of arrows between neighbouring layers cross."""
    count = 0
    for left, right in pairwise(found):
        place = {node: i for i, node in enumerate(right)}
        arrows = [(i, place[target]) for i, node in enumerate(left) for target in targets[node] if target in place]
        count += sum((a < c and b > d) or (a > c and b < d) for i, (a, b) in enumerate(arrows) for c, d in arrows[:i])
    return count
