"""How long a JSON value is when it is written, without writing it: what it shares with itself is measured once."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from ..limits import spend


class Size(NamedTuple):
    """The bytes of a value that stands at the margin, and the line breaks in it, each of which moves in with it."""

    length: int
    lines: int


def written_size(value: Any, indent: int | None, known: dict[int, Size] | None = None) -> Size:
    """The size of a value as `json.dumps` writes it, compact without `indent`, characters as they are.

    known: the sizes of lists and dicts that live on, by their `id`. Raises RecursionError as `json.dumps` does.
    """
    if not isinstance(value, (list, dict)) or not value:
        return Size(len(json.dumps(value, ensure_ascii=False, default=float).encode()), 0)
    if known is None:
        known = {}
    place = id(value)  # type: ignore[arg-type]
    size = known.get(place)
    if size is None:
        spend(100 * len(value))  # type: ignore[arg-type]
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        inner = cast("list[Any]", value) if isinstance(value, list) else list(members.values())
        sizes = [written_size(each, indent, known) for each in inner]
        lines = sum(each.lines for each in sizes)
        length = 1 + len(sizes) + sum(each.length for each in sizes)
        names = "".join(json.dumps(name, ensure_ascii=False) for name in members)
        length += len(names.encode()) + len(members) * (1 if indent is None else 2)
        if indent is not None:
            length += (len(sizes) + lines) * indent + len(sizes) + 1
            lines += len(sizes) + 1
        size = known[place] = Size(length, lines)
    return size
