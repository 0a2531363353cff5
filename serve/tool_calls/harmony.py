"""OpenAI's harmony: an answer consists of messages in channels, some of them addressed to functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...guides.tagged.pieces import EMPTY, Fixed, Free, InOrder, Marker, Named, OneOf, Piece, Several, optional
from .deltas import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, ReasoningDelta, TextDecoder
from .grammar import AnswerGrammar
from .scanner import Reads, Scanner
from .tools import Tool, ToolError

ASSISTANT = "<|start|>assistant"
ANALYSIS, COMMENTARY, FINAL = (f"<|channel|>{name}<|message|>" for name in ("analysis", "commentary", "final"))
FUNCTION = "functions."
ENDS = ("<|end|>", "<|call|>", "<|return|>")
_RECIPIENT = re.compile(rf"to={re.escape(FUNCTION)}([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")


def headers(name: str) -> Iterator[str]:
    """Yield the headers of a call: recipient after or before the channel, with or without content type."""
    for constrained in (" <|constrain|>json", "<|constrain|>json"):
        yield f"<|channel|>commentary to={FUNCTION}{name}{constrained}<|message|>"
    for constrained in (" <|constrain|>json", " json"):
        yield f" to={FUNCTION}{name}<|channel|>commentary{constrained}<|message|>"


class HarmonyGrammar(AnswerGrammar):
    """The grammar of harmony answers, after the header of the first message."""

    def piece(self) -> Piece:
        """Return the piece of the whole answer."""
        start, messages = self.spelling.fixed(ASSISTANT), self._messages(may_think=self.spec.thinks != "no")
        if self.spec.thinks == "open":
            return InOrder((self._text("<|end|>"), start, messages))
        return InOrder((self._analysis(), start, messages)) if self.spec.thinks == "must" else messages

    def behind_thinking(self) -> Piece:
        """Return the messages after a bounded thinking message. They contain no more thinking."""
        return InOrder((self.spelling.fixed(ASSISTANT), self._messages(may_think=False)))

    def check_name(self, tool: Tool) -> None:
        """Raise ToolError for a name that a header cannot contain."""
        if any(character in tool.name for character in " <"):
            where = f"{tool.pointer.removesuffix('parameters')}name"
            raise ToolError(
                f"the tool-call format 'harmony' writes names without quotes, and cannot express {tool.name!r}", where
            )

    def _messages(self, *, may_think: bool) -> Piece:
        """Return optional thinking and preamble messages, followed by the last message."""
        start = self.spelling.fixed(ASSISTANT)
        before: list[Piece] = [self._analysis()] if may_think else []
        if self.callable:
            before.append(InOrder((self.spelling.fixed(COMMENTARY), self._text("<|end|>"))))
        if not before:
            return self._last()
        return InOrder((optional(InOrder((Several(OneOf(tuple(before)), start), start))), self._last()))

    def _analysis(self) -> Piece:
        return InOrder((self.spelling.fixed(ANALYSIS), self._text("<|end|>")))

    def _text(self, end: str, *, may_end: bool = False) -> Piece:
        """Return a message's text up to its end marker, without other markers. may_end: it may end without the
        marker"""
        ends, marker = self.spelling.ends, self.spelling.marker
        others = tuple(marker(each) for each in self.family.markers if each != end and each not in ends)
        exits: tuple[tuple[Marker, Piece], ...] = () if may_end and end in ends else ((marker(end), EMPTY),)
        return Free(exits, others, may_end=may_end)

    def _last(self) -> Piece:
        """Return the message or calls that end the answer."""
        ways: list[Piece] = []
        ends, fixed = self.spelling.ends, self.spelling.fixed
        if self.callable:
            call = self._harmony_call()
            is_one = not self.spec.many or "<|call|>" in ends
            ways.append(call if is_one else Several(call, fixed(ASSISTANT)))
        if self.spec.choice.mode != "required" or not self.callable:
            ended = EMPTY if "<|return|>" in ends else optional(fixed("<|return|>"))
            text = self._text("<|return|>", may_end=True) if self.answer is None else InOrder((self.inner, ended))
            ways.append(InOrder((fixed(FINAL), text)))
        return ways[0] if len(ways) == 1 else OneOf(tuple(ways))

    def _harmony_call(self) -> Piece:
        end = Fixed() if "<|call|>" in self.spelling.ends else self.spelling.fixed("<|call|>")
        return Named(
            tuple(
                (self.spelling.fixed(header), InOrder((self.arguments[tool.name].piece, end)))
                for tool in self.callable
                for header in headers(tool.name)
            )
        )


class HarmonyScript:
    """Parses an answer in harmony."""

    def __init__(
        self, grammar: AnswerGrammar, scanner: Scanner, push: Callable[[Delta], None], new_id: Callable[[], str]
    ) -> None:
        self._grammar, self._scanner, self._push, self._new_id = grammar, scanner, push, new_id
        spelling = grammar.spelling
        self._ends = [spelling.data(end) for end in ENDS if end not in spelling.ends]
        self._calls = 0
        self.is_thinking = grammar.spec.thinks == "open"
        self.is_stopped = False
        self._seen_kinds: set[type[Delta]] = set()

    def run(self) -> Reads:
        """Parse the whole answer."""
        spelling = self._grammar.spelling
        if self._grammar.spec.thinks == "open":
            yield from self._prose(ReasoningDelta)
        while True:
            header: list[bytes] = []
            if (yield from self._scanner.until([spelling.data("<|message|>")], header.append)) is None:
                return  # an incomplete header has no content
            text = spelling.decode(b"".join(header)).removeprefix(ASSISTANT)
            recipient, channel = _RECIPIENT.search(text), _CHANNEL.search(text)
            if recipient is not None and recipient[1] in self._grammar.arguments:
                yield from self._call(recipient[1])
            else:
                yield from self._prose(ReasoningDelta if channel and channel[1] == "analysis" else ContentDelta)
            if self._scanner.ended and not self._scanner.data:
                return

    def _call(self, name: str) -> Reads:
        index, self._calls = self._calls, self._calls + 1
        self._push(CallDelta(index, self._new_id(), name))
        prose = TextDecoder(strip=True)

        def push(data: bytes) -> None:
            if text := prose.push(data):
                self._push(ArgumentsDelta(index, text))

        if (yield from self._scanner.value(push)):
            self._push(CallEndDelta(index))
        yield from self._scanner.until(self._ends, lambda _: None)

    def _prose(self, kind: type[ContentDelta] | type[ReasoningDelta]) -> Reads:
        """Parse a message's text. Line breaks separate texts of one kind."""
        prose = TextDecoder(strip=kind is ReasoningDelta)

        def push(text: str) -> None:
            if text:
                self._push(kind(f"\n{text}" if kind in repeated else text))
                repeated.clear()
                self._seen_kinds.add(kind)

        repeated = {kind} & self._seen_kinds
        self.is_thinking = kind is ReasoningDelta
        yield from self._scanner.until(self._ends, lambda data: push(prose.push(data)))
        self.is_thinking = False
        push(prose.end(keep=kind is ContentDelta))
