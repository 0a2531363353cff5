"""A picture before it is written: nodes and arrows."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ...errors import OptionError
from .parts import Arrow, Kind, Node
from .svg import draw

MAX_PICTURED = 200


_SHAPES: dict[Kind, str] = {"state": "circle", "final": "doublecircle", "rule": "box"}
_BRACKETS: dict[Kind, tuple[str, str]] = {"state": ("((", "))"), "final": ("(((", ")))"), "rule": ("[", "]")}


@dataclass(frozen=True)
class Picture:
    """A graph to be looked at; `start` is the node that an arrow from outside leads to."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    start: int = 0

    def to_svg(self) -> str:
        """A picture for a web page, laid out here: layers by the distance from the start, from left to right."""
        return draw(self.nodes, self.arrows, self.start)

    def to_dot(self) -> str:
        """In Graphviz' language."""
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
        """In Mermaid's language, which GitHub and many editors show as a picture."""
        lines = ["flowchart LR", f"  begin([ ]) --> n{self.start}"]
        for number, node in enumerate(self.nodes):
            left, right = _BRACKETS[node.kind]
            text = _in_mermaid(node.label) + (f"<br/>{_in_mermaid(node.note)}" if node.note else "")
            lines.append(f'  n{number}{left}"{text}"{right}')
        for source, target, label in self.arrows:
            shown = f'|"{_in_mermaid(label)}"|' if label else ""
            lines.append(f"  n{source} -->{shown} n{target}")
        return "\n".join([*lines, ""])


class Drawable:
    """What can be drawn: `picture` says how, and the others write it."""

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """The graph; `tokens` adds the tokens allowed in each state. Raises LimitError above `max_states`."""
        raise OptionError(f"{type(self).__name__} has no picture")

    def to_svg(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """A picture for a web page; `tokens` lists the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_svg()

    def to_mermaid(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """The picture in Mermaid's language; `tokens` lists the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_mermaid()

    def to_dot(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> str:
        """The picture in Graphviz' language; `tokens` lists the tokens allowed in each state."""
        return self.picture(tokens=tokens, max_states=max_states).to_dot()


def _in_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _in_mermaid(text: str) -> str:
    """Mermaid takes HTML's entities, written with # in place of &."""
    escaped = escape(text.replace("#", "\0"), quote=True).replace("&", "#").replace("\0", "#35;")
    return escaped.replace("`", "#96;").replace("\\", "#92;")
