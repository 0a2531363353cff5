"""Beginnings of JSON texts, read without any automaton of an engine: what is certain of the value, and what is open."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import Any

SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BEGUN = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class NotJSONError(ValueError):
    """A text that no JSON text begins with."""


@dataclass
class Node:
    """A value as far as it was read.

    kind: as `type` has it, numbers all "number", or "" before the first character; is_open: it may go on
    value: of a closed value, and the characters of a string that is open
    """

    kind: str = ""
    is_open: bool = True
    value: Any = None
    items: list[Node] = field(default_factory=list["Node"])
    members: list[Member] = field(default_factory=list["Member"])

    def repeats(self) -> bool:
        """True if an object within has a name twice."""
        names = [member.name.value for member in self.members if not member.name.is_open]
        below = [*self.items, *(member.value for member in self.members)]
        return len(set(names)) < len(names) or any(each.repeats() for each in below)


@dataclass
class Member:
    """A member of an object, whose name may be open."""

    name: Node
    value: Node = field(default_factory=Node)


def read(text: bytes) -> Node:
    """The value that a text begins with, read as tokenizers decode: what is no UTF-8 is U+FFFD.

    Raises NotJSONError where no JSON text begins so.
    """
    reader = _Reader(codecs.getincrementaldecoder("utf-8")("replace").decode(text))
    node = reader.value()
    reader.skip_space()
    if not reader.is_at_end():
        raise NotJSONError("more behind the value")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def is_at_end(self) -> bool:
        return self._at >= len(self._text)

    def skip_space(self) -> None:
        while self._next() in SPACE and not self.is_at_end():
            self._at += 1

    def _next(self) -> str:
        """The next character, "" at the end."""
        return self._text[self._at : self._at + 1]

    def value(self) -> Node:
        self.skip_space()
        match self._next():
            case "":
                return Node()
            case '"':
                return self._string()
            case "[":
                return self._array()
            case "{":
                return self._object()
            case "t" | "f" | "n":
                return self._word()
            case _:
                return self._number()

    def _word(self) -> Node:
        for word, kind, value in (("true", "boolean", True), ("false", "boolean", False), ("null", "null", None)):
            found = self._text[self._at : self._at + len(word)]
            if word.startswith(found):
                self._at += len(found)
                return Node(kind, found != word, value)
        raise NotJSONError(f"no value begins with {self._text[self._at : self._at + 8]!r}")

    def _number(self) -> Node:
        begun = _BEGUN.match(self._text, self._at)
        if begun is None or begun.end() == self._at:
            raise NotJSONError(f"no value begins with {self._next()!r}")
        self._at = begun.end()
        if self.is_at_end():
            return Node("number")
        if not _NUMBER.fullmatch(begun[0]):
            raise NotJSONError(f"{begun[0]!r} is no number")
        return Node("number", False, json.loads(begun[0]))

    def _string(self) -> Node:
        self._at += 1
        found = ""
        while not self.is_at_end():
            character = self._next()
            if character == '"':
                self._at += 1
                return Node("string", False, _joined(found))
            if character < " ":
                raise NotJSONError("a control character within a string")
            if character != "\\":
                found += character
                self._at += 1
                continue
            escaped = self._escaped()
            if escaped is None:
                break
            found += escaped
        if found and "\ud800" <= found[-1] < "\udc00":
            found = found[:-1]  # the first half of a pair, whose other half is to come
        return Node("string", True, _joined(found))

    def _escaped(self) -> str | None:
        """The character of an escape; None where the text ends within it."""
        rest = self._text[self._at + 1 : self._at + 6]
        if rest[:1] != "u":
            if rest and rest[0] not in _ESCAPES:
                raise NotJSONError(f"no escape: \\{rest[0]}")
            self._at += 2
            return _ESCAPES[rest[0]] if rest else None
        if not re.fullmatch("u[0-9a-fA-F]{0,4}", rest):
            raise NotJSONError(f"no escape: \\{rest}")
        self._at += 1 + len(rest)
        return chr(int(rest[1:], 16)) if len(rest) == 5 else None

    def _array(self) -> Node:
        self._at += 1
        node = Node("array")
        self.skip_space()
        if self._next() == "]":
            return self._closed(node, [])
        while not self.is_at_end():
            node.items.append(self.value())
            self.skip_space()
            if self._next() == "]":
                return self._closed(node, [item.value for item in node.items])
            if self._has_comma(node.items[-1]) and self.is_at_end():
                node.items.append(Node())
        return node

    def _object(self) -> Node:
        self._at += 1
        node = Node("object")
        self.skip_space()
        if self._next() == "}":
            return self._closed(node, {})
        while not self.is_at_end():
            member = self._member()
            node.members.append(member)
            self.skip_space()
            if self._next() == "}" and not member.name.is_open:
                return self._closed(node, {each.name.value: each.value.value for each in node.members})
            if self._has_comma(member.value) and self.is_at_end():
                node.members.append(Member(Node("string", True, "")))
        return node

    def _member(self) -> Member:
        self.skip_space()
        if self.is_at_end():
            return Member(Node("string", True, ""))
        if self._next() != '"':
            raise NotJSONError(f"no name begins with {self._next()!r}")
        name = self._string()
        self.skip_space()
        if name.is_open or self.is_at_end():
            return Member(name)
        if self._next() != ":":
            raise NotJSONError("no colon behind a name")
        self._at += 1
        return Member(name, self.value())

    def _has_comma(self, before: Node) -> bool:
        """True for a comma behind a value, which is read, False at the end."""
        if self.is_at_end():
            return False
        if self._next() != "," or before.is_open:
            raise NotJSONError(f"{self._next()!r} within an array or object")
        self._at += 1
        self.skip_space()
        return True

    def _closed(self, node: Node, value: Any) -> Node:
        if any(item.is_open for item in [*node.items, *(member.value for member in node.members)]):
            raise NotJSONError("a value is missing")
        self._at += 1
        node.is_open, node.value = False, value
        return node


def _joined(text: str) -> str:
    """A text with pairs of surrogates as the characters that they are; halves stay halves."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
