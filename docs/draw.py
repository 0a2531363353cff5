"""Draws docs/dfa.svg, the picture in how-it-works.md: `python docs/draw.py`.

Takes what `guide.to_dot(tokens=True)` says and sets the states in one row, in the order of a breadth-first
search; Graphviz would draw the same text with more art.
"""

import re
from html import escape
from pathlib import Path

PATTERN = r"([0-9]+)?\.[0-9]+"
TOKENS = [b"1", b"23", b".", b".5", b"7.", b"3.1", b"1.2.3", b"a", b" 4", None]
STEP, RADIUS, MIDDLE = 190, 26, 130
STYLE = 'font-family="sans-serif" font-size="14"'


def dot() -> str:
    """The automaton of PATTERN with the tokens that a small vocabulary has for each state."""
    from trellm import Vocabulary
    from trellm.guides import RegexGuide

    return RegexGuide(PATTERN, Vocabulary(TOKENS, eos_ids=[9])).to_dot(tokens=True)


def svg(graph: str) -> str:
    """A picture of a graph in the form that `to_dot` writes."""
    states = re.findall(r'^  (\d+) \[shape=(\w+), xlabel="(.*)"\];$', graph, re.M)
    edges = re.findall(r'^  (\d+) -> (\d+) \[label="(.*)"\];$', graph, re.M)
    start = int(re.findall(r"begin -> (\d+);", graph)[0])
    width = STEP * len(states) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 240" width="{width}" height="240">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="#333"/></marker></defs>',
        f'<rect width="{width}" height="240" fill="white"/>',
    ]
    lines.append(arrow(f"M{place(start) - RADIUS - 44},{MIDDLE} L{place(start) - RADIUS},{MIDDLE}"))
    for name, shape, tokens in states:
        lines += state(int(name), shape == "doublecircle", tokens)
    for source, target, label in edges:
        lines += edge(int(source), int(target), label)
    return "\n".join([*lines, "</svg>", ""])


def place(number: int) -> int:
    """The horizontal middle of a state."""
    return 110 + STEP * number


def arrow(path: str) -> str:
    """A line with a tip."""
    return f'<path d="{path}" fill="none" stroke="#333" marker-end="url(#tip)"/>'


def text(x: int, y: int, content: str, more: str = "") -> str:
    """Text around a point."""
    return f'<text x="{x}" y="{y}" text-anchor="middle" {STYLE}{more}>{escape(content)}</text>'


def state(number: int, accepting: bool, tokens: str) -> list[str]:
    """A circle, a double one where the text may end, and under it the allowed tokens."""
    x = place(number)
    circles = [RADIUS, RADIUS - 4] if accepting else [RADIUS]
    drawn = [f'<circle cx="{x}" cy="{MIDDLE}" r="{r}" fill="none" stroke="#333"/>' for r in circles]
    shown = " ".join(f"‹{token}›" for token in tokens.split(", "))
    return [*drawn, text(x, MIDDLE + 5, str(number)), text(x, MIDDLE + 62, shown, ' fill="#06c"')]


def edge(source: int, target: int, label: str) -> list[str]:
    """A line to the next state, an arc over the others, a loop to itself."""
    x, y = place(source), MIDDLE
    if source == target:
        path = f"M{x - 12},{y - RADIUS + 2} C{x - 40},{y - 90} {x + 40},{y - 90} {x + 12},{y - RADIUS + 2}"
        return [arrow(path), text(x, y - 78, label)]
    if target == source + 1:
        return [arrow(f"M{x + RADIUS},{y} L{place(target) - RADIUS},{y}"), text(x + STEP // 2, y - 8, label)]
    middle = (x + place(target)) // 2
    bend = y - 110 if target > source else y + 110
    return [arrow(f"M{x},{y - RADIUS} Q{middle},{bend} {place(target)},{y - RADIUS}"), text(middle, bend + 40, label)]


if __name__ == "__main__":
    (Path(__file__).parent / "dfa.svg").write_text(svg(dot()), encoding="utf-8")
