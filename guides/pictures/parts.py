"""What a picture is made of."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["state", "final", "rule"]


class Node(NamedTuple):
    """A state, a state in which the text may end, or a rule; the note stands under it."""

    label: str
    kind: Kind
    note: str = ""


class Arrow(NamedTuple):
    """From node to node, by their numbers, with what is read on the way."""

    source: int
    target: int
    label: str = ""
