"""Pictures of guides that are made of others: boxes and the pictures of these, with arrows between them."""

from __future__ import annotations

from ...checks import switch
from ...errors import LimitError, OptionError
from .picture import Arrow, Drawable, Picture, PictureNode, shortened


def refuse_tokens(tokens: bool, name: str) -> None:
    """Raise OptionError if the allowed tokens are asked for in a picture without the states of its guide."""
    if switch(tokens, "tokens"):
        raise OptionError(f"a picture of {name} has no states, which could allow tokens; leave out tokens")


class Joined:
    """A picture in the making, of at most `max_states` nodes. Raises LimitError where it has more."""

    def __init__(self, max_states: int) -> None:
        self._most = max_states
        self._nodes: list[PictureNode] = []
        self._arrows: list[Arrow] = []

    def picture(self) -> Picture:
        """All that was added; the first node is the start."""
        return Picture(tuple(self._nodes), tuple(self._arrows))

    def box(self, label: str, note: str = "") -> int:
        """Add a box; its number."""
        if len(self._nodes) == self._most:
            raise LimitError(f"the guide has more than {self._most:,} parts, too many for a picture; raise max_states")
        self._nodes.append(PictureNode(shortened(label), "rule", note))
        return len(self._nodes) - 1

    def guide(self, guide: object, *, ends_text: bool = True) -> tuple[int, list[int]]:
        """Add a guide: its picture, or a box with its name where it has none or a larger one; its start and its ends.

        ends_text: whether the whole text may end where the guide's does
        """
        room = self._most - len(self._nodes)
        found: Picture | None = None
        if room and isinstance(guide, Drawable):
            try:
                found = guide.picture(max_states=room)
            except LimitError:  # it is larger than the room that is left
                found = None
        if found is None:
            place = self.box(type(guide).__name__)
            return place, [place]
        first, start = len(self._nodes), len(self._nodes) + found.start
        ends = [first + at for at, node in enumerate(found.nodes) if node.kind == "final"]
        self._nodes += [
            node._replace(kind="state") if node.kind == "final" and not ends_text else node for node in found.nodes
        ]
        for arrow in found.arrows:
            self.arrow(first + arrow.source, first + arrow.target, arrow.label)
        return start, ends or [start]

    def arrow(self, source: int, target: int, label: str = "") -> None:
        """Add an arrow between two nodes."""
        self._arrows.append(Arrow(source, target, label))
