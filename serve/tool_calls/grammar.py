"""The grammar of answers in a format: thinking, content, calls, and constrained answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from typing import Literal, cast

from ...guides import RegexGuide
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide, Guide
from ...guides.required_content import GoalGuide
from ...guides.required_content.specs import Goal
from ...guides.tagged.after_guide import MAX_FREE, AfterGuide
from ...guides.tagged.composed_guide import ComposedGuide
from ...guides.tagged.either_guide import EitherGuide
from ...guides.tagged.pieces import (
    EMPTY,
    Fixed,
    Free,
    Inner,
    InOrder,
    Lowerable,
    Marker,
    Named,
    OneOf,
    Piece,
    Several,
    optional,
)
from .arguments import CallArguments, json_arguments, plain_arguments
from .formats import ARGUMENTS, IDENT, CallFrame, FormatSpec, Spelling
from .tools import Mode, Tool, ToolChoice, ToolError

BLANKS = (" ", "\t", "\r", "\n")
"""Characters that begin no content if calls are recognised by their beginning, since the reader skips them."""
BEHIND_STOP = 24
"""Greatest number of characters in a token after the stop string that it completes."""
LINES = 2
"""Greatest number of line breaks between thinking and its continuation."""
Thinks = Literal["no", "may", "must", "open"]
"""Modes of thinking; "open" if the prompt already contains the opening marker."""


@dataclass(frozen=True)
class AnswerSpec:
    """The requirements of an answer.

    tools, choice, many: tools that may be called, whether a call is required, and whether several are allowed
    thinks, budget: mode of thinking, and the most tokens of it
    answer: guide of an answer without calls, None for free text
    stop: stop strings of content
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    many: bool
    thinks: Thinks
    budget: int | None
    answer: ByteGuide | None = None
    stop: tuple[str, ...] = ()


class AnswerGrammar:
    """The grammar of the answers to one request, used by their guide and their reader.

    has_thinking: whether thinking markers are special here
    callable, arguments: tools that may be called, and the arguments of each, shared by all frames
    is_ambiguous: whether a constrained answer may begin like a call, so that only its end decides

    Raises ToolError, LanguageError, LimitError.
    """

    def __init__(
        self,
        family: FormatSpec,
        spelling: Spelling,
        spec: AnswerSpec,
        *,
        has_thinking: bool,
        goals: tuple[Goal, ...] = (),
        limits: Limits | None = None,
    ) -> None:
        self.family, self.spelling, self.spec, self.answer = family, spelling, spec, spec.answer
        self._limits = limits
        self._thinking = tuple(map(spelling.marker, family.thinking or ())) if has_thinking else ()
        self.callable = tuple(
            tool for tool in spec.tools if spec.choice.mode != "none" and tool.name in spec.choice.names
        )
        self.arguments = {tool.name: self._arguments(tool) for tool in self.callable}
        if goals:
            piece = self._answer_piece("none")
            composed = self._compose(Free(may_end=True) if piece is None else piece)
            self.answer = GoalGuide(composed, goals, limits=limits)
        self.is_ambiguous = self._may_begin_as_call()

    def name_of(self, tool: Tool, frame: CallFrame) -> str:
        """Return a tool's name as a frame writes it."""
        return json.dumps(tool.name, ensure_ascii=False)[1:-1] if frame.is_json else tool.name

    def leads(self, *, has_thought: bool) -> list[bytes]:
        """Return the texts that may stand before calls. has_thought: thinking came before"""
        lines = range(LINES + 1 if has_thought else 1)
        return list(dict.fromkeys(b"\n" * number + lead for number in lines for lead in (b"", self._lead)))

    def guide(self) -> Guide | None:
        """Return the guide of the whole answer; None for free text. Raises OptionError, LimitError."""
        thinks, budget, thinking = self.spec.thinks, self.spec.budget, self.family.thinking
        if is_unembeddable(self.answer):
            return self._unembedded()
        if budget is not None and thinking is not None and thinks == "open":
            end = self.spelling.marker(thinking[1])
            return AfterGuide(self._compose(self.behind_thinking()), end, most=budget, limits=self._limits)
        piece = self.piece()
        return None if piece is None else self._compose(piece)

    def piece(self) -> Piece | None:
        """Return the piece of the whole answer; None for free text."""
        piece, thinks = self._answer_piece(self.spec.choice.mode), self.spec.thinks
        if piece is None or thinks == "no" or self.family.thinking is None:
            return piece
        begin, end = self.family.thinking
        thought: Piece = Free(((self.spelling.marker(end), _behind_lines(EMPTY)),), (self.spelling.marker(begin),))
        if thinks != "open":
            thought = InOrder((self.spelling.fixed(begin), thought))
        return InOrder((optional(thought) if thinks == "may" else thought, piece))

    def behind_thinking(self) -> Piece:
        """Return the piece after the marker that ends thinking."""
        piece = self._answer_piece(self.spec.choice.mode)
        return _behind_lines(Free(may_end=True) if piece is None else piece)

    @property
    def inner(self) -> Inner:
        """The constrained answer as a piece. It must be embeddable."""
        return Inner(cast("Lowerable", self.answer))

    @property
    def _lead(self) -> bytes:
        return self.family.lead.encode()

    def _arguments(self, tool: Tool) -> CallArguments:
        self.check_name(tool)
        form = self.family.frames[0].parameters if self.family.frames else None
        if form is None:
            return json_arguments(tool, self.spelling.vocabulary, self._limits)
        return plain_arguments(tool, form, self.spelling, self._limits)

    def check_name(self, tool: Tool) -> None:
        """Raise ToolError for a name that is ambiguous together with the text after it."""
        for frame in self.family.frames:
            if frame.is_json:
                continue
            ends = {text[0] for text in frame.after_name if text not in (IDENT, ARGUMENTS)} | {self.family.trigger[:1]}
            ends |= {frame.parameters.before[:1]} if frame.parameters else set()
            ends |= {frame.ident.before[:1]} if frame.ident else set()
            clash = next((character for character in tool.name if character in ends), None)
            if clash is not None:
                raise ToolError(
                    f"the tool-call format {self.family.name!r} writes names without quotes, and {clash!r} would end "
                    f"{tool.name!r}; use letters, digits, _ and -",
                    f"{tool.pointer.removesuffix('parameters')}name",
                )

    def _may_begin_as_call(self) -> bool:
        if self.answer is None:
            return False
        for frame, lead in product(self.family.frames, self.leads(has_thought=self.spec.thinks != "no")):
            head = self.answer.read(self.answer.start, lead + self.spelling.data(frame.head))
            names = (self.spelling.data(self.name_of(tool, frame)) for tool in self.callable)
            if head != DEAD and any(self.answer.read(head, name) != DEAD for name in names):
                return True
        return False

    def _answer_piece(self, mode: Mode) -> Piece | None:
        """Return everything after thinking; None for free text. mode: of the choice of tools"""
        family, stops = self.family, self._stops()
        markers, beginnings = self._call_markers(), self._call_beginnings()
        if not self.callable or mode == "none":
            if self.answer is not None:
                return self.inner
            refused = self._thinking + (markers if self.spec.tools else ())
            unlike = beginnings if self.spec.tools else ()
            return Free(stops, refused, may_end=True, unlike=unlike) if stops or refused or unlike else None
        calls = self._calls(0)
        if family.lead:
            calls = InOrder((optional(self.spelling.fixed(family.lead)), calls))
        if mode == "required":
            return calls
        if self.answer is not None:
            return OneOf((calls, self.inner))
        if family.trigger:
            exits = ((self.spelling.marker(family.trigger), self._calls(len(family.trigger))),)
            return Free(exits + stops, self._thinking, may_end=True)
        # A stop string inside the beginning of a call would end content there and begin a call as well.
        heads = [(head, stop) for head in beginnings for stop in self.spec.stop if stop in head]
        stopped = tuple(head[: head.index(stop) + len(stop)] for head, stop in heads)
        return OneOf((calls, Free(stops, self._thinking + markers, may_end=True, unlike=beginnings + stopped)))

    def _calls(self, cut: int) -> Piece:
        """Return all calls of an answer, without the first `cut` characters."""
        frames, many = self.family.frames, self.spec.many
        has_single = any(frame.is_single for frame in frames)
        framed = [self._frame_piece(frame, cut) for frame in frames if frame.is_single or many or not has_single]
        return framed[0] if len(framed) == 1 else OneOf(tuple(framed))

    def _frame_piece(self, frame: CallFrame, cut: int) -> Piece:
        fixed, call = self.spelling.fixed, self._call(frame)
        first, closing = fixed(frame.head[cut:]), fixed(frame.closing)
        if frame.is_single or not self.spec.many:
            return InOrder((first, call, closing))
        more = Several(InOrder((fixed(frame.call_head), call)), fixed(frame.between))
        return InOrder((first, call, optional(InOrder((fixed(frame.between), more))), closing))

    def _call(self, frame: CallFrame) -> Piece:
        """Return a call from its name on."""
        branches: list[tuple[Fixed, Piece]] = []
        for tool in self.callable:
            name, rest = self.name_of(tool, frame), frame.after_name
            if rest[0] not in (IDENT, ARGUMENTS):
                name, rest = name + rest[0], rest[1:]
            pieces = tuple(self._part(part, frame, tool) for part in rest)
            branches.append((self.spelling.fixed(name), InOrder(pieces)))
        return Named(tuple(branches))

    def _part(self, part: str, frame: CallFrame, tool: Tool) -> Piece:
        if part == ARGUMENTS:
            return self.arguments[tool.name].piece
        if part != IDENT:
            return self.spelling.fixed(part)
        assert frame.ident is not None
        ident, fixed = frame.ident, self.spelling.fixed
        pattern = RegexGuide(ident.pattern, self.spelling.vocabulary)
        piece = InOrder((fixed(ident.before), Inner(pattern), fixed(ident.behind)))
        return optional(piece) if ident.is_optional else piece

    def _stops(self) -> tuple[tuple[Marker, Piece], ...]:
        """Return the stop strings, each with the rest of its last token. The reader drops both."""
        if not self.spec.stop:
            return ()
        rest = Inner(RegexGuide(f"[\\s\\S]{{0,{BEHIND_STOP}}}", self.spelling.vocabulary))
        return tuple((text, rest) for text in self.spec.stop)

    def _call_markers(self) -> tuple[Marker, ...]:
        """Return the markers that begin calls anywhere."""
        family = self.family
        openings = [frame.opening for frame in family.frames if frame.opening in family.markers]
        return tuple(map(self.spelling.marker, [family.trigger] if family.trigger else openings))

    def _call_beginnings(self) -> tuple[str, ...]:
        """Return the beginnings reserved for calls, if calls are recognised by their beginning."""
        if self.family.trigger:
            return ()
        return (*(each.head for each in self.family.frames if each.opening not in self.family.markers), *BLANKS)

    def _unembedded(self) -> Guide:
        """Return the guide of an answer that cannot be embedded in a graph, with thinking before it."""
        answer = self._unembedded_answer()
        if self.spec.thinks == "no" or self.family.thinking is None:
            return answer
        begin, end = map(self.spelling.marker, self.family.thinking)
        behind = EitherGuide([answer, *(self._behind("\n" * number, answer) for number in range(1, LINES + 1))])
        most = MAX_FREE if self.spec.budget is None else self.spec.budget
        thought = AfterGuide(behind, end, most=most, limits=self._limits)
        if self.spec.thinks == "open":
            return thought
        with_thinking = self._behind(begin, thought)
        return with_thinking if self.spec.thinks == "must" else EitherGuide([answer, with_thinking])

    def _unembedded_answer(self) -> Guide:
        assert self.answer is not None
        if not self.callable:
            return self.answer
        piece = self._answer_piece("required")
        assert piece is not None
        calls = self._compose(piece)
        return calls if self.spec.choice.mode == "required" else EitherGuide([calls, self.answer])

    def _compose(self, piece: Piece) -> ComposedGuide:
        return ComposedGuide(piece, self.spelling.vocabulary, limits=self._limits)

    def _behind(self, marker: Marker, child: Guide) -> AfterGuide:
        """Return the guide of a marker followed by the child."""
        return AfterGuide(child, marker, most=0, limits=self._limits)


def _behind_lines(piece: Piece) -> Piece:
    return InOrder((*[optional(Fixed(("\n",)))] * LINES, piece))


def is_unembeddable(answer: Guide | None) -> bool:
    """Test whether an answer's guide cannot be embedded in a graph."""
    return answer is not None and (not hasattr(answer, "lower_into") or bool(getattr(answer, "refuses_lowering", "")))
