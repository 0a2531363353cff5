"""Pictures as SVG, drawn without any other program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from .layout import layers
from .parts import Arrow, Node

RADIUS = 22
CHARACTER = 7.3  # the width of one in the font below, about
LINE = 17
GAP = 44
NOTE_WIDTH = 26
_FONT = 'font-family="ui-monospace, monospace" font-size="12"'
_BRIGHT, _PALE = "#ffd43b", "#fff3bf"  # of what is highlighted: arrows and nodes
_HALO = 'paint-order="stroke" stroke="white" stroke-width="4" stroke-linejoin="round"'


class _Drawing:
    """The places of all nodes, and what is written so far: lines, then outlines over them, then texts over both."""

    def __init__(
        self, nodes: Sequence[Node], arrows: Sequence[Arrow], start: int, marked: Collection[int] = ()
    ) -> None:
        self.nodes = nodes
        self.arrows = arrows
        self.start = start
        self.marked = marked
        self.notes = [_wrapped(node.note) for node in nodes]
        self.half = [_half_width(node) for node in nodes]
        self.layer = [0] * len(nodes)
        self.x = [0.0] * len(nodes)
        self.y = [0.0] * len(nodes)
        self.paths: list[str] = []
        self.shapes: list[str] = []
        self.texts: list[str] = []
        self.low = self.high = 0.0
        self._place(layers(len(nodes), [(arrow.source, arrow.target) for arrow in arrows], start))

    def _place(self, found: list[list[int]]) -> None:
        """Layers side by side, with room for the labels between them; nodes below each other around the middle."""
        right = GAP
        loops = {arrow.source for arrow in self.arrows if arrow.source == arrow.target}
        for at, layer in enumerate(found):
            wide = max(max(self.half[node], _note_width(self.notes[node]) / 2) for node in layer)
            middle = right + wide
            above = [RADIUS + (58 if node in loops else 18) for node in layer]
            below = [RADIUS + 18 + LINE * len(self.notes[node]) for node in layer]
            tops = [sum(above[:i]) + sum(below[:i]) + above[i] for i in range(len(layer))]
            for node, y in zip(layer, tops, strict=True):
                self.layer[node], self.x[node], self.y[node] = at, middle, y - sum(tops) / len(tops)
            labels = [len(arrow.label) for arrow in self.arrows if arrow.source in layer and arrow.target not in layer]
            right = middle + wide + max(GAP, CHARACTER * max(labels, default=0) + 30)
        self.right = right

    def write(self) -> str:
        """The whole picture."""
        for number in range(len(self.nodes)):
            self._node(number)
        x, y = self.x[self.start] - self.half[self.start], self.y[self.start]
        self._path(f"M{x - 30:.0f},{y:.0f} L{x:.0f},{y:.0f}")
        for arrow in sorted(self.arrows, key=lambda arrow: abs(self.layer[arrow.target] - self.layer[arrow.source])):
            self._arrow(arrow)
        width, top, height = self.right, self.low - 10, self.high - self.low + 20
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top:.0f} {width:.0f} {height:.0f}" '
                f'width="{width:.0f}" height="{height:.0f}">',
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="#333"/></marker></defs>',
                f'<rect y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="white"/>',
                *self.paths,
                *self.shapes,
                *self.texts,
                "</svg>",
                "",
            ]
        )

    def _node(self, number: int) -> None:
        node, x, y, half = self.nodes[number], self.x[number], self.y[number], self.half[number]
        self._reach(y - RADIUS, y + RADIUS)
        fill = _PALE if number in self.marked else "white"
        if node.kind == "rule":
            self.shapes.append(
                f'<rect x="{x - half:.0f}" y="{y - RADIUS:.0f}" width="{2 * half:.0f}" height="{2 * RADIUS}" rx="4" '
                f'fill="{fill}" stroke="#333"/>'
            )
        else:
            for radius in (RADIUS, RADIUS - 4) if node.kind == "final" else (RADIUS,):
                self.shapes.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius}" fill="{fill}" stroke="#333"/>')
        self._text(x, y + 4, node.label)
        for at, line in enumerate(self.notes[number]):
            self._text(x, y + RADIUS + 15 + LINE * at, line, "#06c")

    def _arrow(self, arrow: Arrow) -> None:
        source, target, label = arrow
        onward = self.layer[target] - self.layer[source]
        if source == target:
            self._loop(source, label)
        elif onward == 1:
            self._forward(source, target, label)
        elif onward >= -1:
            self._bent(source, target, label)
        else:
            self._far_back(source, target, label)

    def _loop(self, node: int, label: str) -> None:
        """An arrow from a node to itself, above it."""
        x, top = self.x[node], self.y[node] - RADIUS
        self._path(f"M{x - 10:.0f},{top + 2:.0f} C{x - 32:.0f},{top - 48:.0f} {x + 32:.0f},{top - 48:.0f} "
                   f"{x + 10:.0f},{top + 2:.0f}")  # fmt: skip
        self._text(x, top - 41, label)

    def _forward(self, source: int, target: int, label: str) -> None:
        """An arrow to the next layer."""
        left, right = self.x[source] + self.half[source], self.x[target] - self.half[target]
        y, below, bend = self.y[source], self.y[target], (right - left) / 2
        path = f"M{left:.0f},{y:.0f} C{left + bend:.0f},{y:.0f} {right - bend:.0f},{below:.0f} {right:.0f},{below:.0f}"
        if source in self.marked and target in self.marked:
            self.paths.append(f'<path d="{path}" fill="none" stroke="{_BRIGHT}" stroke-width="7"/>')
        self._path(path)
        self._text((left + right) / 2, (y + below) / 2 - 6, label)

    def _bent(self, source: int, target: int, label: str) -> None:
        """An arrow within a layer, or to the one before: bent to its left, so that one each way is room for."""
        x, y, dx, dy = self._span(source, target)
        length = (dx * dx + dy * dy) ** 0.5
        ux, uy = dx / length, dy / length
        bend = 34 + length / 10
        middle = (x + dx / 2 + uy * bend, y + dy / 2 - ux * bend)
        ends = [self._edge(node, *middle) for node in (source, target)]
        (left, top), (right, bottom) = ends
        self._path(f"M{left:.0f},{top:.0f} Q{middle[0]:.0f},{middle[1]:.0f} {right:.0f},{bottom:.0f}")
        self._text((left + 2 * middle[0] + right) / 4, (top + 2 * middle[1] + bottom) / 4 + 4, label)

    def _span(self, source: int, target: int) -> tuple[float, float, float, float]:
        """Where a node is, and how far from it another is."""
        x, y = self.x[source], self.y[source]
        return x, y, self.x[target] - x, self.y[target] - y

    def _edge(self, node: int, x: float, y: float) -> tuple[float, float]:
        """The point on a node's outline in the direction of (x, y)."""
        dx, dy = x - self.x[node], y - self.y[node]
        if self.nodes[node].kind == "rule":
            scale = min(self.half[node] / abs(dx) if dx else 1e9, RADIUS / abs(dy) if dy else 1e9)
        else:
            scale = RADIUS / (dx * dx + dy * dy) ** 0.5
        return self.x[node] + dx * scale, self.y[node] + dy * scale

    def _far_back(self, source: int, target: int, label: str) -> None:
        """An arrow over a layer or more, above everything between."""
        first, last = self.layer[target], self.layer[source]
        between = [node for node in range(len(self.nodes)) if first <= self.layer[node] <= last]
        top = min(self.y[node] for node in between) - RADIUS
        peak = min(top, self.low) - 50 - 4 * (last - first)
        x, after = self.x[source], self.x[target]
        start, end = self.y[source] - RADIUS, self.y[target] - RADIUS
        self._path(f"M{x:.0f},{start:.0f} C{x:.0f},{peak:.0f} {after:.0f},{peak:.0f} {after:.0f},{end:.0f}")
        height = (start + end) / 8 + peak * 0.75
        self._text((x + after) / 2, height - 5, label)
        self._reach(height - 8, height)

    def _path(self, path: str) -> None:
        self.paths.append(f'<path d="{path}" fill="none" stroke="#333" marker-end="url(#tip)"/>')

    def _text(self, x: float, y: float, text: str, colour: str = "black") -> None:
        if text:
            self._reach(y - 14, y + 6)
            style = f'text-anchor="middle" {_FONT} fill="{colour}" {_HALO}'
            self.texts.append(f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>')

    def _reach(self, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)


def draw(nodes: Sequence[Node], arrows: Sequence[Arrow], start: int, marked: Collection[int] = ()) -> str:
    """The picture of a graph: arrows to the next layer are drawn straight on, those back above the nodes.

    marked: nodes to be highlighted, and the arrows onward between them
    """
    return _Drawing(nodes, arrows, start, marked).write()


def _half_width(node: Node) -> float:
    return RADIUS if node.kind != "rule" else CHARACTER * len(node.label) / 2 + 10


def _note_width(lines: Sequence[str]) -> float:
    return CHARACTER * max(map(len, lines), default=0)


def _wrapped(note: str) -> list[str]:
    """The note in lines of at most about NOTE_WIDTH characters, broken at spaces."""
    lines: list[str] = []
    for word in note.split(" ") if note else []:
        if lines and len(lines[-1]) + 1 + len(word) <= NOTE_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
