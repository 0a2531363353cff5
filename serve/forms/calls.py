"""The calls of a form as pieces of a guide."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from ...guides import RegexGuide
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide
from ...guides.tagged.pieces import Fixed, Inner, InOrder, Lowerable, Named, OneOf, Piece, Several, perhaps
from ...tokenizers_adapter import Vocabulary
from .arguments import Arguments, json_arguments, plain_arguments
from .families import Family, Frame
from .spelling import Spelling
from .tools import Choice, Tool, ToolError


@dataclass(frozen=True)
class Asked:
    """What is asked of an answer.

    tools, choice, many: which may be called, whether they must, and whether several times
    answer: the guide of an answer that is no call, None for free text
    stop: texts that end content and are no part of it
    """

    tools: tuple[Tool, ...]
    choice: Choice
    many: bool = True
    answer: ByteGuide | None = None
    stop: tuple[str, ...] = ()

    @property
    def inner(self) -> Inner:
        """The answer as a piece, where it can be one."""
        return Inner(cast("Lowerable", self.answer))

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return (
            () if self.choice.mode == "none" else tuple(tool for tool in self.tools if tool.name in self.choice.names)
        )


class Calls:
    """The calls of a form as pieces: made once for all frames, the arguments of each tool once."""

    def __init__(
        self, family: Family, spelling: Spelling, asked: Asked, vocabulary: Vocabulary, limits: Limits | None
    ) -> None:
        self._family, self._spelling, self._asked = family, spelling, asked
        self._vocabulary, self._limits = vocabulary, limits
        self.arguments: dict[str, Arguments] = {}
        for tool in asked.callable:
            for frame in family.frames:
                check_name(tool, frame, family)
            form = family.frames[0].parameters if family.frames else None
            if form is None:
                self.arguments[tool.name] = json_arguments(tool, vocabulary, limits)
            else:
                self.arguments[tool.name] = plain_arguments(tool, form, spelling, vocabulary, limits)

    def may_begin(self, answer: ByteGuide | None, leads: Sequence[bytes]) -> bool:
        """Whether an answer that is no call may begin as one. leads: what may stand before calls"""
        if answer is None:
            return False
        for frame, lead in product(self._family.frames, leads):
            head = answer.read(answer.start, lead + self._spelling.data(frame.opening, frame.head))
            if head != DEAD and any(
                answer.read(head, self._spelling.data(quoted(tool.name) if frame.quoted else tool.name)) != DEAD
                for tool in self._asked.callable
            ):
                return True
        return False

    def piece(self, *, behind_trigger: bool) -> Piece:
        """All calls of an answer, from the trigger on or from what is behind it."""
        written: list[Piece] = []
        for frame in self._family.frames:
            if frame.is_single or self._asked.many or not any(each.is_single for each in self._family.frames):
                written.append(self._framed(frame, len(self._family.trigger) if behind_trigger else 0))
        return written[0] if len(written) == 1 else OneOf(tuple(written))

    def _framed(self, frame: Frame, cut: int) -> Piece:
        fixed = self._spelling.fixed
        first, calls = (frame.opening + frame.head)[cut:], self._named(frame)
        closing = fixed(frame.closing)
        if frame.is_single or not self._asked.many:
            return InOrder((fixed(first), calls, closing))
        more = Several(InOrder((fixed(frame.head), calls)), fixed(frame.between))
        again = InOrder((fixed(frame.between), more))
        return InOrder((fixed(first), calls, perhaps(again), closing))

    def _named(self, frame: Frame) -> Piece:
        """A call from the name on."""
        branches: list[tuple[Fixed, Piece]] = []
        for tool in self._asked.callable:
            name = quoted(tool.name) if frame.quoted else tool.name
            inner, tail = self.arguments[tool.name].piece, self._spelling.fixed(frame.tail)
            if frame.ident is None:
                branches.append((self._spelling.fixed(name, frame.behind_name), InOrder((inner, tail))))
                continue
            ident = self._ident(frame)
            if frame.ident.behind_arguments:
                branches.append((self._spelling.fixed(name, frame.behind_name), InOrder((inner, ident, tail))))
            else:
                behind = self._spelling.fixed(frame.behind_name)
                branches.append((self._spelling.fixed(name), InOrder((ident, behind, inner, tail))))
        return Named(tuple(branches))

    def _ident(self, frame: Frame) -> Piece:
        assert frame.ident is not None
        ident = frame.ident
        piece = InOrder((self._spelling.fixed(ident.before), Inner(RegexGuide(ident.pattern, self._vocabulary))))
        return perhaps(piece) if ident.is_optional else piece


def quoted(name: str) -> str:
    """A name as it is within a JSON string."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def check_name(tool: Tool, frame: Frame, family: Family) -> None:
    """Raise ToolError for a name that cannot be told from what follows it."""
    if frame.quoted:
        return
    ends = {text[:1] for text in (frame.behind_name, frame.tail, family.trigger)}
    ends |= {frame.parameters.before[:1]} if frame.parameters else set()
    ends |= {frame.ident.before[:1]} if frame.ident else set()
    strange = next((character for character in tool.name if character in ends), None)
    if strange is not None:
        raise ToolError(
            f"the form {family.name!r} writes names plainly, and {strange!r} would end {tool.name!r}; use letters, "
            "digits, _ and -",
            f"{tool.pointer.removesuffix('parameters')}name",
        )
