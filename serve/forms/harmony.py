"""Harmony, the form of gpt-oss, as a piece of a guide: messages with channels and recipients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ...guides.tagged.pieces import NOTHING, Fixed, Free, InOrder, Named, OneOf, Piece, Several, perhaps
from .answer import Thinks
from .arguments import Arguments
from .calls import Asked
from .families import HARMONY
from .spelling import Spelling
from .tools import ToolError

ASSISTANT = "<|start|>assistant"
ANALYSIS, COMMENTARY, FINAL = (f"<|channel|>{name}<|message|>" for name in ("analysis", "commentary", "final"))
FUNCTION = "functions."


def headers(name: str) -> Iterator[str]:
    """What a call may begin with: the recipient behind the channel or before it, the type of its content or not."""
    for constrained in (" <|constrain|>json", "<|constrain|>json"):
        yield f"<|channel|>commentary to={FUNCTION}{name}{constrained}<|message|>"
    for constrained in (" <|constrain|>json", " json"):
        yield f" to={FUNCTION}{name}<|channel|>commentary{constrained}<|message|>"


def harmony_piece(
    spelling: Spelling, asked: Asked, arguments: dict[str, Arguments], thinks: Thinks | Literal["behind"]
) -> Piece:
    """What comes behind the header of an answer; "behind": from the end of its thinking on. Raises ToolError."""
    again, last = spelling.fixed(ASSISTANT), _last(spelling, asked, arguments)
    text = _Texts(spelling)
    before: list[Piece] = []
    analysis = InOrder((spelling.fixed(ANALYSIS), text.ended()))
    if thinks in ("may", "must", "open"):
        before.append(analysis)
    if asked.callable:
        before.append(InOrder((spelling.fixed(COMMENTARY), text.ended())))
    rest = last
    if before:
        rest = InOrder((perhaps(InOrder((Several(OneOf(tuple(before)), again), again))), last))
    if thinks == "open":
        return InOrder((text.ended(), again, rest))
    if thinks == "must":
        return InOrder((analysis, again, rest))
    return InOrder((again, rest)) if thinks == "behind" else rest


class _Texts:
    """The texts of messages, in which no marker is but that which ends them."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling

    def ended(self) -> Piece:
        """One that ends with the marker of that."""
        return Free(self._exit("<|end|>"), self._others("<|end|>"))

    def last(self) -> Piece:
        """One that ends the answer."""
        exits = () if "<|return|>" in self._spelling.ends else self._exit("<|return|>")
        return Free(exits, self._others("<|return|>"), may_end=True)

    def _exit(self, text: str) -> tuple[tuple[str | int, Piece], ...]:
        return ((self._spelling.marker(text), NOTHING),)

    def _others(self, text: str) -> tuple[str | int, ...]:
        others = [each for each in HARMONY.markers if each != text and each not in self._spelling.ends]
        return tuple(map(self._spelling.marker, others))


def _last(spelling: Spelling, asked: Asked, arguments: dict[str, Arguments]) -> Piece:
    """The message that ends the answer, or calls."""
    ways: list[Piece] = []
    if asked.callable:
        call = _call(spelling, asked, arguments)
        ways.append(
            Several(call, spelling.fixed(ASSISTANT)) if asked.many and "<|call|>" not in spelling.ends else call
        )
    if asked.choice.mode != "required" or not asked.callable:
        ended = NOTHING if "<|return|>" in spelling.ends else perhaps(spelling.fixed("<|return|>"))
        text = _Texts(spelling).last() if asked.answer is None else InOrder((asked.inner, ended))
        ways.append(InOrder((spelling.fixed(FINAL), text)))
    return ways[0] if len(ways) == 1 else OneOf(tuple(ways))


def _call(spelling: Spelling, asked: Asked, arguments: dict[str, Arguments]) -> Piece:
    end = Fixed() if "<|call|>" in spelling.ends else spelling.fixed("<|call|>")
    branches: list[tuple[Fixed, Piece]] = []
    for tool in asked.callable:
        if any(character in tool.name for character in " <"):
            where = f"{tool.pointer.removesuffix('parameters')}name"
            raise ToolError(f"the form 'harmony' writes names plainly, and cannot write {tool.name!r}", where)
        inner = arguments[tool.name].piece
        branches += [(spelling.fixed(header), InOrder((inner, end))) for header in headers(tool.name)]
    return Named(tuple(branches))
