"""Reads parameters that are written one by one, and writes them as JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Generator, Mapping
from typing import Any

from ..arguments import Value
from ..families import Parameters
from .deltas import TOKENS
from .scanner import Scanner


def read_parameters(
    scanner: Scanner,
    form: Parameters,
    values: Mapping[str, Value],
    data: Callable[[str], bytes],
    tail: bytes,
    push: Callable[[bytes], None],
) -> Generator[None, None, bool]:
    """Hand on the arguments up to the tail as a JSON object; whether that came. data: a text with markers in bytes"""
    before, end = data(form.before), data(form.end)
    behind_name, behind_text = data(form.behind_name), data(form.behind_text)
    behind = [behind_name, behind_text] if behind_text else [behind_name]
    push(b"{")
    comma = ""
    while True:
        yield from scanner.blanks()
        found = yield from scanner.match([before, tail])
        if found != before:
            push(b"}" if found == tail else b"")
            return found == tail
        name: list[bytes] = []
        found = yield from scanner.until(behind, name.append)
        if found is None:
            return False
        key = b"".join(name).translate(None, TOKENS).decode(errors="replace")
        push(f"{comma}{_dumped(key)}: ".encode())
        comma = ", "
        value = None if behind_text else values.get(key)
        if found == behind_text or (value is not None and value.as_json is None):
            push(b'"')
            string = _String(push, form.own_line)
            stop = yield from scanner.until([end], string.push)
            string.end()
            if stop is None:
                return False
            push(b'"')
            continue
        whole: list[bytes] = []
        if behind_text or (value is not None and value.as_text is None):  # JSON, in whose strings the end may stand
            is_ended = yield from scanner.unquoted(end, whole.append)
        else:
            is_ended = (yield from scanner.until([end], whole.append)) is not None
        if not is_ended:
            return False
        text = b"".join(whole).translate(None, TOKENS).decode(errors="replace")
        push(_as_json(text.removesuffix("\n") if form.own_line else text, value).encode())


class _String:
    """The inside of a JSON string, of bytes as they come. own_line: whether a line break at its end is left out"""

    def __init__(self, push: Callable[[bytes], None], own_line: bool) -> None:
        self._push = push
        self._own_line = own_line
        self._held = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> None:
        text = self._held + self._decoder.decode(data.translate(None, TOKENS))
        given = text.removesuffix("\n") if self._own_line else text
        self._held = text[len(given) :]
        self._push(_dumped(given)[1:-1].encode())

    def end(self) -> None:
        text = self._decoder.decode(b"", True)
        self._push(_dumped(self._held + text if text else "")[1:-1].encode())


def _as_json(text: str, value: Value | None) -> str:
    """A value as JSON: as it is where it is that, else a string."""
    if value is not None and not value.is_json(text):
        return _dumped(text)
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return _dumped(text)
    return text


def _refused(text: str) -> Any:
    raise ValueError(text)


def _dumped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
