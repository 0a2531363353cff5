"""The guide of a whole answer: thinking, content, calls, an answer that a schema asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, cast

from ...guides import RegexGuide
from ...guides.goals import GoalGuide
from ...guides.goals.specs import Goal
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide, Guide
from ...guides.tagged.after_guide import MOST_FREE, AfterGuide
from ...guides.tagged.composed_guide import ComposedGuide
from ...guides.tagged.either_guide import EitherGuide
from ...guides.tagged.pieces import (
    NOTHING,
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
    perhaps,
)
from ...tokenizers_adapter import Vocabulary
from .arguments import CallArguments, json_arguments, plain_arguments
from .formats import HARMONY, CallFrame, FormatSpec, Spelling
from .tools import Choice, Tool, ToolError


@dataclass(frozen=True)
class AnswerSpec:
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
        self, family: FormatSpec, spelling: Spelling, asked: AnswerSpec, vocabulary: Vocabulary, limits: Limits | None
    ) -> None:
        self._family, self._spelling, self._asked = family, spelling, asked
        self._vocabulary, self._limits = vocabulary, limits
        self.arguments: dict[str, CallArguments] = {}
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

    def _framed(self, frame: CallFrame, cut: int) -> Piece:
        fixed = self._spelling.fixed
        first, calls = (frame.opening + frame.head)[cut:], self._named(frame)
        closing = fixed(frame.closing)
        if frame.is_single or not self._asked.many:
            return InOrder((fixed(first), calls, closing))
        more = Several(InOrder((fixed(frame.head), calls)), fixed(frame.between))
        again = InOrder((fixed(frame.between), more))
        return InOrder((fixed(first), calls, perhaps(again), closing))

    def _named(self, frame: CallFrame) -> Piece:
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

    def _ident(self, frame: CallFrame) -> Piece:
        assert frame.ident is not None
        ident = frame.ident
        piece = InOrder((self._spelling.fixed(ident.before), Inner(RegexGuide(ident.pattern, self._vocabulary))))
        return perhaps(piece) if ident.is_optional else piece


def quoted(name: str) -> str:
    """A name as it is within a JSON string."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def check_name(tool: Tool, frame: CallFrame, family: FormatSpec) -> None:
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


# What a text that is no call does not begin with, where a call is told by how it begins: the reader passes over these
BLANKS = (" ", "\t", "\r", "\n")
BEHIND_STOP = 24
"""Characters of a token behind the stop string that it completes."""
LINES = 2
"""So many line breaks may stand between thinking and what follows."""
Thinks = Literal["no", "may", "must", "open"]
"""Whether an answer has thinking before it: "open" where its marker is in the prompt already."""


def answer_piece(family: FormatSpec, spelling: Spelling, asked: AnswerSpec, calls: Calls, thinks: bool) -> Piece | None:
    """What comes behind thinking; None where anything may. thinks: whether the markers of thinking are markers here"""
    thinking = tuple(map(spelling.marker, family.thinking)) if thinks and family.thinking else ()
    stops = _stops(spelling, asked)
    if not asked.callable:
        if asked.answer is not None:
            return asked.inner
        refused = thinking + (call_markers(family, spelling) if asked.tools else ())
        unlike = call_beginnings(family) if asked.tools else ()
        return Free(stops, refused, may_end=True, unlike=unlike) if stops or refused or unlike else None
    whole = calls.piece(behind_trigger=False)
    if family.lead:
        whole = InOrder((perhaps(spelling.fixed(family.lead)), whole))
    if asked.choice.mode == "required":
        return whole
    if asked.answer is not None:
        return OneOf((whole, asked.inner))
    if family.trigger:
        exits = ((spelling.marker(family.trigger), calls.piece(behind_trigger=True)),)
        return Free(exits + stops, thinking, may_end=True)
    refused = thinking + call_markers(family, spelling)
    unlike = (*call_beginnings(family), *_stopped_calls(family, asked))
    return OneOf((whole, Free(stops, refused, may_end=True, unlike=unlike)))


def _stops(spelling: Spelling, asked: AnswerSpec) -> tuple[tuple[Marker, Piece], ...]:
    """What ends content, each with the rest of the token that it ends in: the reader leaves both out."""
    if not asked.stop:
        return ()
    rest = Inner(RegexGuide(f"[\\s\\S]{{0,{BEHIND_STOP}}}", spelling.vocabulary))
    return tuple((text, rest) for text in asked.stop)


def _stopped_calls(family: FormatSpec, asked: AnswerSpec) -> tuple[str, ...]:
    """Beginnings of calls up to a stop string in them, which would end content there and begin a call as well."""
    heads = call_beginnings(family)
    return tuple(head[: head.index(stop) + len(stop)] for head in heads for stop in asked.stop if stop in head)


def call_markers(family: FormatSpec, spelling: Spelling) -> tuple[Marker, ...]:
    """The markers that begin calls, wherever they stand."""
    openings = [frame.opening for frame in family.frames if frame.opening in family.markers]
    return tuple(spelling.marker(each) for each in ([family.trigger] if family.trigger else openings))


def call_beginnings(family: FormatSpec) -> tuple[str, ...]:
    """What texts that are no calls do not begin with, where a call is told by how it begins."""
    if family.trigger:
        return ()
    heads = [frame.opening + frame.head for frame in family.frames if frame.opening not in family.markers]
    return (*heads, *BLANKS)


def with_thinking(family: FormatSpec, spelling: Spelling, piece: Piece, thinks: Thinks) -> Piece:
    """The piece with thinking before it, of any length."""
    if thinks == "no" or family.thinking is None:
        return piece
    begin, end = family.thinking
    thought: Piece = Free(((spelling.marker(end), behind_thinking(NOTHING)),), (spelling.marker(begin),))
    if thinks != "open":
        thought = InOrder((spelling.fixed(begin), thought))
    return InOrder((perhaps(thought) if thinks == "may" else thought, piece))


def behind_thinking(piece: Piece) -> Piece:
    """The piece behind line breaks."""
    return InOrder((*[perhaps(Fixed(("\n",)))] * LINES, piece))


def leads_of(family: FormatSpec, *, has_thought: bool) -> list[bytes]:
    """What may stand before calls. has_thought: whether there was thinking before it"""
    lines = range(LINES + 1 if has_thought else 1)
    return list(dict.fromkeys(b"\n" * number + lead for number in lines for lead in (b"", family.lead.encode())))


def is_apart(answer: Guide | None) -> bool:
    """Whether an answer cannot be a part of a graph."""
    return answer is not None and (not hasattr(answer, "lower_into") or bool(getattr(answer, "refuses_lowering", "")))


@dataclass(frozen=True)
class Apart:
    """Makes the guides of one request. has_thinking: whether the markers of thinking are markers here"""

    family: FormatSpec
    spelling: Spelling
    calls: Calls
    has_thinking: bool
    limits: Limits | None

    def with_goals(self, asked: AnswerSpec, goals: tuple[Goal, ...]) -> GoalGuide:
        """The guide of an answer that is free but for goals, and no call. Raises LanguageError, LimitError."""
        none = replace(asked, choice=Choice("none", asked.choice.names))
        piece = answer_piece(self.family, self.spelling, none, self.calls, self.has_thinking)
        return GoalGuide(self._composed(Free(may_end=True) if piece is None else piece), goals, limits=self.limits)

    def guide(self, asked: AnswerSpec, thinks: Thinks, budget: int | None) -> Guide:
        """The guide of calls or the answer, with thinking before them. Raises LimitError."""
        said = self._said(asked)
        if thinks == "no" or self.family.thinking is None:
            return said
        begin, end = map(self.spelling.marker, self.family.thinking)
        behind = EitherGuide([said, *(self._behind("\n" * number, said) for number in range(1, LINES + 1))])
        thought = AfterGuide(behind, end, most=MOST_FREE if budget is None else budget, limits=self.limits)
        if thinks == "open":
            return thought
        begun = self._behind(begin, thought)
        return begun if thinks == "must" else EitherGuide([said, begun])

    def _said(self, asked: AnswerSpec) -> Guide:
        """What comes behind thinking."""
        assert asked.answer is not None
        if not asked.callable:
            return asked.answer
        must = replace(asked, choice=replace(asked.choice, mode="required"))
        piece = answer_piece(self.family, self.spelling, must, self.calls, self.has_thinking)
        assert piece is not None
        called = self._composed(piece)
        return called if asked.choice.mode == "required" else EitherGuide([called, asked.answer])

    def _composed(self, piece: Piece) -> ComposedGuide:
        return ComposedGuide(piece, self.spelling.vocabulary, limits=self.limits)

    def _behind(self, marker: Marker, child: Guide) -> AfterGuide:
        """The marker, and then the child."""
        return AfterGuide(child, marker, most=0, limits=self.limits)


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
    spelling: Spelling, asked: AnswerSpec, arguments: dict[str, CallArguments], thinks: Thinks | Literal["behind"]
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


def _last(spelling: Spelling, asked: AnswerSpec, arguments: dict[str, CallArguments]) -> Piece:
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


def _call(spelling: Spelling, asked: AnswerSpec, arguments: dict[str, CallArguments]) -> Piece:
    end = Fixed() if "<|call|>" in spelling.ends else spelling.fixed("<|call|>")
    branches: list[tuple[Fixed, Piece]] = []
    for tool in asked.callable:
        if any(character in tool.name for character in " <"):
            where = f"{tool.pointer.removesuffix('parameters')}name"
            raise ToolError(f"the form 'harmony' writes names plainly, and cannot write {tool.name!r}", where)
        inner = arguments[tool.name].piece
        branches += [(spelling.fixed(header), InOrder((inner, end))) for header in headers(tool.name)]
    return Named(tuple(branches))
