"""An EBNF close to Lark's, to show rules to people."""

from __future__ import annotations

from collections.abc import Mapping

from ..automata.charsets import LAST, negate
from ..syntax import Alternation, Chars, Literal, Node, Ranges, Reference, Repeat, Sequence, Table
from .combine import REPEATS

WIDTH = 100

_ALTERNATION, _SEQUENCE, _ATOM = range(3)
_ESCAPES = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x5C: "\\\\"}


def render_rules(rules: Mapping[str, Node]) -> str:
    """Render all rules as lines `name: body`."""
    return "".join(f"{_rule(name, body)}\n" for name, body in rules.items())


def render(node: Node) -> str:
    """Render a node on one line; `""` is the empty text, `<nothing>` the empty language."""
    return _render(node, _ALTERNATION)


def _rule(name: str, body: Node) -> str:
    head = f"{render_name(name)}:"
    line = f"{head} {render(body)}"
    if len(line) <= WIDTH or not isinstance(body, Alternation):
        return line
    return f"{head} " + "\n    | ".join(_render(item, _SEQUENCE) for item in body.items)


def render_name(name: str) -> str:
    """Render a rule's name, in angle brackets unless it is a word, a quotation, or has them already."""
    is_plain = name.replace("-", "_").isidentifier() or name.startswith(("quote(", "<"))
    return name if is_plain else f"<{name}>"


def _render(node: Node, level: int) -> str:
    """Render depth first with an explicit stack: nodes may be nested deeper than Python's stack."""
    out: list[str] = []
    todo: list[str | tuple[Node, int]] = [(node, level)]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            out.append(item)
        else:
            todo.extend(reversed(_parts(*item)))
    return "".join(out)


def _parts(node: Node, level: int) -> list[str | tuple[Node, int]]:
    match node:
        case Literal(data):
            return [_literal(data)]
        case Chars(ranges):
            return [_chars(ranges)]
        case Reference(name):
            return [render_name(name)]
        case Table():
            return [f"<automaton of {len(node.accepting)} states>"]
        case Sequence(items) if not items:
            return ['""']
        case Alternation(items) if not items:
            return ["<nothing>"]
        case Sequence((only,)) | Alternation((only,)):
            return [(only, level)]
        case Repeat(inner, low, high):
            return [(inner, _ATOM), _count(low, high)]
        case Sequence(items):
            return _join(items, " ", _SEQUENCE, level)
        case Alternation(items):
            return _join(items, " | ", _ALTERNATION, level)


def _join(items: tuple[Node, ...], separator: str, precedence: int, level: int) -> list[str | tuple[Node, int]]:
    parts: list[str | tuple[Node, int]] = []
    for item in items:
        parts += [separator, (item, precedence + 1)]
    parts[0] = "(" if precedence < level else ""
    parts.append(")" if precedence < level else "")
    return parts


def _count(low: int, high: int | None) -> str:
    if (low, high) in _MARKS:
        return _MARKS[low, high]
    if high is None:
        return f"{{{low},}}"
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


_MARKS = {counts: mark for mark, counts in REPEATS.items()}


def _literal(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    return '"' + "".join(_character(ord(c), '"') for c in text) + '"'


def _chars(ranges: Ranges) -> str:
    """Render a set; one with both the first and the last character is rendered as a complement."""
    shown: list[str] = []
    if ranges and ranges[0][0] == 0 and ranges[-1][1] == LAST:
        shown.append("^")
        ranges = negate(ranges)
    for low, high in ranges:
        shown.append(_character(low, "[]^-"))
        if high > low:
            shown.append(("-" if high > low + 1 else "") + _character(high, "[]^-"))
    return f"[{''.join(shown)}]"


def _character(code: int, special: str) -> str:
    if code in _ESCAPES:
        return _ESCAPES[code]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    character = chr(code)
    if character in special:
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
