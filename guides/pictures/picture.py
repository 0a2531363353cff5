"""Pictures of automata, grammars and searches: labelled nodes and arrows, as SVG, Mermaid or Graphviz text.

A composed guide is drawn as boxes and the pictures of its parts, with arrows between them (`PictureBuilder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Literal, NamedTuple

from ...checks import check_bool
from ...errors import LimitError, OptionError, SchemaError

MAX_PICTURED = 200
MAX_TEXT = 60
"""Characters of a label, or of a line of a note."""
MAX_SHOWN = 1 << 19
"""Characters of the largest SVG that a notebook shows."""

Kind = Literal["state", "final", "rule"]
_SHAPES: dict[Kind, str] = {"state": "circle", "final": "doublecircle", "rule": "box"}
_BRACKETS: dict[Kind, tuple[str, str]] = {"state": ("((", "))"), "final": ("(((", ")))"), "rule": ("[", "]")}

# Sizes in SVG, in pixels; notes in characters
RADIUS = 22
CHARACTER = 7.3  # approximate width in the font below
LINE = 17
GAP = 44
NOTE_WIDTH = 26
_FONT = 'text-anchor="middle" font-family="ui-monospace, monospace" font-size="12"'
_BRIGHT, _PALE = "#ffd43b", "#fff3bf"  # highlighted arrows and nodes
_HALO = 'paint-order="stroke" stroke="white" stroke-width="4" stroke-linejoin="round"'
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="#333"/></marker></defs>'
)


def shortened(text: str) -> str:
    """Truncate a text to the width of a picture's label."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


class PictureNode(NamedTuple):
    """A state, an accepting state, or a rule; the note of one or more lines stands below it."""

    label: str
    kind: Kind
    note: str = ""


class Arrow(NamedTuple):
    """An arrow between two nodes, by number, with the label of what is read."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """A graph to be drawn.

    start: the node with an arrow from outside
    marked: nodes that SVG highlights, with the arrows between them
    """

    nodes: tuple[PictureNode, ...]
    arrows: tuple[Arrow, ...]
    start: int = 0
    marked: frozenset[int] = frozenset()

    def to_svg(self) -> str:
        """Render as SVG: columns by the distance from the start, from left to right."""
        return _Drawing(self).svg()

    def to_dot(self) -> str:
        """Render in Graphviz' language."""
        shape = "box" if all(node.kind == "rule" for node in self.nodes) else "circle"
        lines = [
            "digraph {",
            "  rankdir=LR;",
            f'  node [shape={shape}, fontname="sans-serif"];',
            "  begin [shape=point];",
            f"  begin -> {self.start};",
        ]
        for number, node in enumerate(self.nodes):
            label = f', label="{_in_dot(node.label)}"' if node.label != str(number) else ""
            note = f', xlabel="{_in_dot(node.note)}"' if node.note else ""
            lines.append(f"  {number} [shape={_SHAPES[node.kind]}{label}{note}];")
        for source, target, label in self.arrows:
            shown = f' [label="{_in_dot(label)}"]' if label else ""
            lines.append(f"  {source} -> {target}{shown};")
        return "\n".join([*lines, "}", ""])

    def to_mermaid(self) -> str:
        """Render in Mermaid's language, which GitHub and many editors display."""
        lines = ["flowchart LR", f"  begin([ ]) --> n{self.start}"]
        for number, node in enumerate(self.nodes):
            left, right = _BRACKETS[node.kind]
            text = _in_mermaid(node.label) + (f"<br/>{_in_mermaid(node.note)}" if node.note else "")
            lines.append(f'  n{number}{left}"{text}"{right}')
        for source, target, label in self.arrows:
            shown = f'|"{_in_mermaid(label)}"|' if label else ""
            lines.append(f"  n{source} -->{shown} n{target}")
        return "\n".join([*lines, ""])

    def columns(self) -> list[list[int]]:
        """Group the nodes by distance from the start, breadth first; unreachable nodes are in the first column."""
        depth = {self.start: 0}
        queue = [self.start]
        for node in queue:
            for arrow in self.arrows:
                if arrow.source == node and arrow.target not in depth:
                    depth[arrow.target] = depth[node] + 1
                    queue.append(arrow.target)
        found: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
        for node in dict.fromkeys([*queue, *range(len(self.nodes))]):
            found[depth.get(node, 0)].append(node)
        return found


class Drawable:
    """A guide that can be drawn: `picture` builds the graph, and the other methods render it."""

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the guide; `tokens` adds the tokens allowed in each state. Raises LimitError above `max_states`."""
        raise OptionError(f"{type(self).__name__} has no picture")

    def to_svg(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """Render as SVG; `tokens` adds the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_svg()

    def to_mermaid(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """Render in Mermaid's language; `tokens` adds the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_mermaid()

    def to_dot(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """Render in Graphviz' language; `tokens` adds the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_dot()

    def _repr_svg_(self) -> str | None:
        """Render for a notebook, unless the picture is too large."""
        return svg_of(self)


def svg_of(guide: object) -> str | None:
    """Render a guide as SVG; None if it has no picture, or one that is too large."""
    if not isinstance(guide, Drawable):
        return None
    try:
        svg = guide.to_svg()
    except (LimitError, OptionError, SchemaError):
        return None
    return svg if len(svg) <= MAX_SHOWN else None


class _Drawing:
    """The SVG of a picture: positions of nodes, then lines, outlines over them, and texts on top."""

    def __init__(self, picture: Picture) -> None:
        self._nodes, self._arrows, self._marked = picture.nodes, picture.arrows, picture.marked
        self._notes = [_wrap_note(node.note) for node in self._nodes]
        self._half = [CHARACTER * len(n.label) / 2 + 10 if n.kind == "rule" else RADIUS for n in self._nodes]
        self._place = [(0, 0.0, 0.0)] * len(self._nodes)  # column, x and y of each node
        self._lines: list[str] = []
        self._outlines: list[str] = []
        self._texts: list[str] = []
        self._top = self._bottom = 0.0
        self._width = self._place_columns(picture.columns())
        x, y = self._place[picture.start][1] - self._half[picture.start], self._place[picture.start][2]
        self._line(f"M{x - 30:.0f},{y:.0f} L{x:.0f},{y:.0f}")
        for number in range(len(self._nodes)):
            self._node(number)
        for arrow in self._arrows:
            self._arrow(arrow)

    def svg(self) -> str:
        """Return the SVG file."""
        width, top, height = self._width, self._top - 10, self._bottom - self._top + 20
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top:.0f} {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}">{_TIP}',
                f'<rect y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="white"/>',
                *self._lines,
                *self._outlines,
                *self._texts,
                "</svg>",
                "",
            ]
        )

    def _place_columns(self, columns: list[list[int]]) -> float:
        """Place columns side by side, with room for labels, and rows around the middle; return the width."""
        loops = any(arrow.source == arrow.target for arrow in self._arrows)
        row = 2 * RADIUS + (60 if loops else 36) + LINE * max(map(len, self._notes))
        right = GAP
        for column, nodes in enumerate(columns):
            notes = [CHARACTER * len(line) / 2 for node in nodes for line in self._notes[node]]
            half_width = max(notes + [self._half[node] for node in nodes])
            for at, node in enumerate(nodes):
                self._place[node] = column, right + half_width, (at - (len(nodes) - 1) / 2) * row
            labels = [len(arrow.label) for arrow in self._arrows if arrow.source in nodes and arrow.target not in nodes]
            right += 2 * half_width + max(GAP, CHARACTER * max(labels, default=0) + 30)
        return right

    def _node(self, number: int) -> None:
        node, half, (_, x, y) = self._nodes[number], self._half[number], self._place[number]
        colours = f'fill="{_PALE if number in self._marked else "white"}" stroke="#333"/>'
        if node.kind == "rule":
            corner = f'x="{x - half:.0f}" y="{y - RADIUS:.0f}" width="{2 * half:.0f}" height="{2 * RADIUS}" rx="4"'
            self._outlines.append(f"<rect {corner} {colours}")
        else:
            for radius in (RADIUS, RADIUS - 4) if node.kind == "final" else (RADIUS,):
                self._outlines.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius}" {colours}')
        self._text(x, y + 4, node.label)
        for at, line in enumerate(self._notes[number]):
            self._text(x, y + RADIUS + 15 + LINE * at, line, "#06c")
        self._extend_bounds(y - RADIUS, y + RADIUS)

    def _arrow(self, arrow: Arrow) -> None:
        """Draw an arrow: straight to the next column, else bent to its left, so that opposite arrows do not overlap."""
        source, target, label = arrow
        (column, x, y), (after, right, below) = self._place[source], self._place[target]
        if source == target:
            top = y - RADIUS
            self._line(f"M{x - 10:.0f},{top + 2:.0f} C{x - 32:.0f},{top - 48:.0f} {x + 32:.0f},{top - 48:.0f} "
                       f"{x + 10:.0f},{top + 2:.0f}")  # fmt: skip
            self._extend_bounds(top - 41, top)
            self._text(x, top - 41, label)
            return
        dx, dy = right - x, below - y
        length = (dx * dx + dy * dy) ** 0.5
        bend = 0 if after == column + 1 else 34 + length / 4
        middle = (x + dx / 2 + bend * dy / length, y + dy / 2 - bend * dx / length)
        (x, y), (right, below) = self._outline(source, *middle), self._outline(target, *middle)
        path = f"M{x:.0f},{y:.0f} Q{middle[0]:.0f},{middle[1]:.0f} {right:.0f},{below:.0f}"
        if source in self._marked and target in self._marked:
            self._lines.append(f'<path d="{path}" fill="none" stroke="{_BRIGHT}" stroke-width="7"/>')
        self._line(path)
        at = (y + 2 * middle[1] + below) / 4
        self._extend_bounds(at, at)
        self._text((x + 2 * middle[0] + right) / 4, at - 4, label)

    def _outline(self, node: int, x: float, y: float) -> tuple[float, float]:
        """Return the point on a node's outline in the direction of (x, y)."""
        _, left, top = self._place[node]
        dx, dy = x - left, y - top
        if self._nodes[node].kind == "rule":
            scale = min(self._half[node] / abs(dx) if dx else 1e9, RADIUS / abs(dy) if dy else 1e9)
        else:
            scale = RADIUS / (dx * dx + dy * dy) ** 0.5
        return left + dx * scale, top + dy * scale

    def _line(self, path: str) -> None:
        self._lines.append(f'<path d="{path}" fill="none" stroke="#333" marker-end="url(#tip)"/>')

    def _text(self, x: float, y: float, text: str, colour: str = "black") -> None:
        if text:
            self._extend_bounds(y - 14, y + 6)
            self._texts.append(f'<text x="{x:.0f}" y="{y:.0f}" {_FONT} fill="{colour}" {_HALO}>{escape(text)}</text>')

    def _extend_bounds(self, top: float, bottom: float) -> None:
        self._top, self._bottom = min(self._top, top), max(self._bottom, bottom)


def _wrap_note(note: str) -> list[str]:
    return [
        part
        for line in note.split("\n")
        for part in wrap(line, NOTE_WIDTH, break_long_words=False, break_on_hyphens=False)
    ]


def _in_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _in_mermaid(text: str) -> str:
    """Escape a text for Mermaid, which writes HTML's entities with # instead of &."""
    escaped = escape(text.replace("#", "\0"), quote=True).replace("&", "#").replace("\0", "#35;")
    return escaped.replace("`", "#96;").replace("\\", "#92;").replace("\n", "<br/>")


def refuse_tokens(tokens: bool, name: str) -> None:
    """Raise OptionError if `tokens` is True for a picture without states."""
    if check_bool(tokens, "tokens"):
        raise OptionError(f"a picture of {name} has no states, which could allow tokens; leave out tokens")


class PictureBuilder:
    """A picture under construction, of at most `max_states` nodes. Raises LimitError beyond."""

    def __init__(self, max_states: int) -> None:
        self._limit = max_states
        self._nodes: list[PictureNode] = []
        self._arrows: list[Arrow] = []

    def picture(self) -> Picture:
        """Return the picture so far; the first node is the start."""
        return Picture(tuple(self._nodes), tuple(self._arrows))

    def box(self, label: str, note: str = "") -> int:
        """Add a box and return its number."""
        if len(self._nodes) == self._limit:
            raise LimitError(f"the guide has more than {self._limit:,} parts, too many for a picture; raise max_states")
        self._nodes.append(PictureNode(shortened(label), "rule", note))
        return len(self._nodes) - 1

    def guide(self, guide: object, *, ends_text: bool = True) -> tuple[int, list[int]]:
        """Add a guide's picture, or a box with its name if that is impossible; return its start and its ends.

        ends_text: whether the whole text may end where the guide's text does
        """
        room = self._limit - len(self._nodes)
        found: Picture | None = None
        if room and isinstance(guide, Drawable):
            try:
                found = guide.picture(max_states=room)
            except LimitError:  # larger than the remaining room
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
