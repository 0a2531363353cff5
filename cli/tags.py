"""--tag of the command line: markers in free text, and the files of what they begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from .files.reading import read_file
from .flags import Text

if TYPE_CHECKING:
    from ..guides.limits import Limits
    from ..guides.tagged import TaggedGuide
    from ..tokenizers_adapter import Vocabulary

_KINDS: dict[str, Literal["json", "lark", "gbnf", "regex"]] = {
    ".json": "json", ".lark": "lark", ".gbnf": "gbnf", ".regex": "regex",
}  # fmt: skip
_TEXT = Text()


@dataclass(frozen=True)
class Tag:
    """Two markers, and what is between them: a JSON Schema, a grammar or a pattern, in a file of this `kind`."""

    begin: str
    kind: Literal["json", "lark", "gbnf", "regex"]
    text: str
    end: str

    def guide(self, vocabulary: Vocabulary, limits: Limits | None) -> Any:
        """The guide of what is between the markers."""
        from ..guides import CFGGuide, JSONGuide, RegexGuide

        if self.kind == "json":
            return JSONGuide(json.loads(self.text), vocabulary, limits=limits)
        if self.kind == "regex":
            return RegexGuide(self.text, vocabulary, limits=limits)
        return CFGGuide(self.text, vocabulary, None, self.kind, limits=limits)


def read_tags(
    context: click.Context, parameter: click.Parameter, given: Sequence[tuple[str, str, str]]
) -> tuple[Tag, ...]:
    """The tags of --tag BEGIN FILE END."""
    found: list[Tag] = []
    for begin, path, end in given:
        first, last = (_TEXT.convert(marker, parameter, context) for marker in (begin, end))
        kind = _KINDS.get(Path(path).suffix.lower())
        if kind is None:
            names = "a schema in .json, a grammar in .lark or .gbnf, a pattern in .regex"
            raise click.BadParameter(f"{path!r} does not say what it is by its name: {names}")
        text = read_file(context, parameter, path) or ""
        if kind == "json":
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise click.BadParameter(f"{path!r} is no JSON: {error}") from None
        found.append(Tag(first, kind, text.removesuffix("\n") if kind == "regex" else text, last))
    return tuple(found)


def guide_of(
    tags: Sequence[Tag], vocabulary: Vocabulary, limits: Limits | None, special: Callable[[str], int | None] | None
) -> TaggedGuide:
    """The guide of free text with such parts. special: the token without bytes that a marker is, if it is one"""
    from ..guides.tagged import TaggedGuide

    def marker(text: str) -> str | int:
        token = None if special is None or not text else special(text)
        return text if token is None else token

    made = [(marker(tag.begin), tag.guide(vocabulary, limits), marker(tag.end)) for tag in tags]
    return TaggedGuide(made, vocabulary, limits=limits)
