"""Reads what a model writes in its tool-call format, as it comes, into content, thinking and calls."""

from __future__ import annotations

import codecs
import json
import re
import string
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...engine.decode.randomness import fresh_bits
from ...guides.protocol import DEAD, ByteGuide
from .arguments import CallArguments, ParameterValue
from .deltas import (
    TOKENS,
    ArgumentsDelta,
    CallDelta,
    CallEndDelta,
    ContentDelta,
    Delta,
    ParsedMessage,
    Prose,
    ReasoningDelta,
    joined,
    message_of,
)
from .formats import CallFrame, FormatSpec, Parameters, Spelling
from .guides import ASSISTANT, FUNCTION, LINES, AnswerSpec, Thinks, leads_of, quoted
from .scanner import Reads, Scanner


@dataclass(frozen=True)
class ReaderSpec:
    """The form, what was asked, how the arguments of each tool are written, and whether there is thinking first.

    is_ambiguous: whether an answer that is no call may begin as one, so that only its end tells
    """

    family: FormatSpec
    spelling: Spelling
    asked: AnswerSpec
    arguments: dict[str, CallArguments]
    thinks: Thinks
    is_ambiguous: bool = False


def read_parameters(
    scanner: Scanner,
    form: Parameters,
    values: Mapping[str, ParameterValue],
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


def _as_json(text: str, value: ParameterValue | None) -> str:
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


class Script:
    """How an answer is read in all forms but harmony."""

    def __init__(
        self, reading: ReaderSpec, scanner: Scanner, push: Callable[[Delta], None], new_id: Callable[[], str]
    ) -> None:
        self._reading, self._scanner, self._push, self._new_id = reading, scanner, push, new_id
        self._content = Prose(strip=False)
        self._calls = 0
        self.is_thinking = reading.thinks == "open" and reading.family.thinking is not None
        self._ids: set[str] = set()
        self._known: dict[CallFrame, dict[bytes, tuple[str, bytes]]] = {}
        self._data = reading.spelling.data
        self.is_stopped = self._has_thought = False
        self._stops = [text.encode() for text in reading.asked.stop]

    def run(self) -> Reads:
        """Read all."""
        reading, family = self._reading, self._reading.family
        if reading.thinks != "no" and family.thinking is not None:
            begin = self._data(family.thinking[0])
            if reading.thinks == "open" or (yield from self._scanner.match([begin])):
                yield from self._think(self._data(family.thinking[1]))
        if family.trigger and reading.asked.callable and reading.asked.answer is None:
            yield from self._triggered(self._data(family.trigger))
        else:
            if reading.asked.callable:
                yield from self._at_start()
            if self._has_thought and not self._calls and reading.asked.answer is not None:
                yield from self._pass_lines(reading.asked.answer)
            self.is_stopped = (yield from self._scanner.until(self._stops, self._say)) is not None
        self._say_last(keep=True)
        yield from self._scanner.until([], lambda _: None)

    def _think(self, end: bytes) -> Reads:
        prose = Prose(strip=True)
        self.is_thinking = True
        yield from self._scanner.until([end], lambda data: self._give(ReasoningDelta(prose.push(data))))
        self.is_thinking = False
        self._give(ReasoningDelta(prose.end(keep=False)))
        self._has_thought = True
        self._content.strip = self._reading.asked.answer is None

    def _triggered(self, trigger: bytes) -> Reads:
        """Content in which a marker begins calls."""
        heads = {self._head(frame)[len(trigger) :]: frame for frame in self._reading.family.frames}
        while (found := (yield from self._scanner.until([trigger, *self._stops], self._say))) == trigger:
            head = yield from self._scanner.match(heads)
            if head is None:
                self._say(trigger)
            else:
                yield from self._framed(heads[head], trigger + head)
        self.is_stopped = found is not None

    def _at_start(self) -> Reads:
        """Calls, if the text begins as one."""
        leads = [b""]
        if self._reading.asked.answer is None:
            yield from self._scanner.blanks()  # with which no content begins
        else:
            leads = leads_of(self._reading.family, has_thought=self._has_thought)
        heads = {lead + self._head(frame): (lead, frame) for frame in self._reading.family.frames for lead in leads}
        found = yield from self._scanner.match(heads)
        if found is None:
            return
        lead, frame = heads[found]
        if not self._reading.is_ambiguous:
            yield from self._framed(frame, self._head(frame))
            return
        whole = [self._head(frame)]
        yield from self._scanner.until([], whole.append)
        if not self._is_called(b"".join(whole)):
            self._scanner.data[:0] = lead + b"".join(whole)

    def _is_called(self, data: bytes) -> bool:
        """Read a whole text as calls if it is nothing else; whether it is."""
        found: list[Delta] = []
        scanner = Scanner()
        scanner.data, scanner.ended = bytearray(data), True
        certain = replace(self._reading, thinks="no", is_ambiguous=False)
        for _ in Script(certain, scanner, found.append, self._new_id).run():
            raise AssertionError("nothing is waited for where all is there")
        begun = sum(isinstance(delta, CallDelta) for delta in found)
        ended = sum(isinstance(delta, CallEndDelta) for delta in found)
        if begun != ended or any(isinstance(delta, ContentDelta) for delta in found):
            return False
        for delta in found:
            self._push(delta)
        self._calls += begun
        return True

    def _pass_lines(self, answer: ByteGuide) -> Reads:
        """Pass over line breaks between thinking and an answer, as many as are none of the answer's own."""
        ways = dict.fromkeys(range(LINES, -1, -1), answer.start)
        read = 0
        while len(set(ways.values())) > 1 or read < max(ways, default=0):
            if read == len(self._scanner.data):
                if self._scanner.ended:
                    break
                yield
                continue
            byte = bytes(self._scanner.data[read : read + 1])
            for passed, state in tuple(ways.items()):
                if read >= passed:
                    ways[passed] = answer.read(state, byte)
                if ways[passed] == DEAD or (read < passed and byte != b"\n"):
                    del ways[passed]
            read += 1
        left = [passed for passed in ways if passed <= read]
        whole = [passed for passed in left if answer.is_accepting(ways[passed])]
        del self._scanner.data[: next(iter(whole or left), 0)]

    def _head(self, frame: CallFrame) -> bytes:
        return self._data(frame.opening, frame.head)

    def _framed(self, frame: CallFrame, head: bytes) -> Reads:
        """Calls, from the name of the first on."""
        more, closing = self._data(frame.between, frame.head), self._data(frame.closing)
        options = [more] if not closing else [more, closing]
        while (yield from self._call(frame, head)):
            head = more
            if frame.is_single:
                return
            found = yield from self._scanner.match(options)
            if found != more:
                return

    def _call(self, frame: CallFrame, head: bytes) -> Generator[None, None, bool]:
        """A call from its name on; whether it was one. What is none is content."""
        names = self._names(frame)
        found = yield from self._scanner.match(names)
        if found is None:
            self._say(head)
            return False
        name, follows = names[found]
        self._scanner.data[:0] = follows
        said, read = head + found[: len(found) - len(follows)], list[bytes]()
        if frame.ident is not None and not frame.ident.behind_arguments:
            before = yield from self._scanner.match([self._data(frame.ident.before)])
            if before is None:
                stop = yield from self._scanner.match([self._data(frame.behind_name)])
            else:
                stop = yield from self._scanner.until([self._data(frame.behind_name)], read.append)
            if stop is None:
                self._say(said + (before or b"") + b"".join(read))
                return False
        index = self._begin(frame, name, b"".join(read).decode(errors="replace"))
        return (yield from self._arguments(frame, name, index))

    def _names(self, frame: CallFrame) -> dict[bytes, tuple[str, bytes]]:
        """What may stand where a name does: the name, and what of it is to be read once more."""
        if frame in self._known:
            return self._known[frame]
        found = self._known[frame] = {}
        for tool in self._reading.asked.callable:
            name = quoted(tool.name) if frame.quoted else tool.name
            if frame.ident is not None and not frame.ident.behind_arguments:
                ends = [self._data(frame.ident.before)]
                ends += [self._data(frame.behind_name)] if frame.ident.is_optional else []
                found |= {self._data(name) + end: (tool.name, end) for end in ends}
            elif frame.behind_name:
                found[self._data(name, frame.behind_name)] = tool.name, b""
            else:
                assert frame.parameters is not None
                ends = [self._data(frame.parameters.before), self._data(frame.tail)]
                found |= {self._data(name) + end: (tool.name, end) for end in ends}
        return found

    def _begin(self, frame: CallFrame, name: str, ident: str) -> int:
        self._say_last(keep=False)
        index, self._calls = self._calls, self._calls + 1
        written = frame.ident.written.format(name=name, id=ident) if ident and frame.ident else self._new_id()
        if written in self._ids:  # two calls of a model that miscounts
            written = self._new_id()
        self._ids.add(written)
        self._push(CallDelta(index, written, name))
        return index

    def _arguments(self, frame: CallFrame, name: str, index: int) -> Generator[None, None, bool]:
        """The arguments of a call and its end; whether these came."""
        prose = Prose(strip=True)

        def push(data: bytes) -> None:
            if text := prose.push(data):
                self._push(ArgumentsDelta(index, text))

        tail = self._data(frame.tail)
        if frame.parameters is not None:
            values = self._reading.arguments[name].values
            is_read = yield from read_parameters(self._scanner, frame.parameters, values, self._data, tail, push)
        else:
            is_read = yield from self._scanner.value(push)
            if is_read:
                yield from self._pass_ident(frame)
            is_read = is_read and (not tail or (yield from self._scanner.match([tail])) is not None)
        if is_read:
            self._push(CallEndDelta(index))
        self._content = Prose(strip=True)
        return is_read

    def _pass_ident(self, frame: CallFrame) -> Reads:
        """Pass over an id behind the arguments, which comes too late to be that of the call."""
        ident = frame.ident
        if ident is not None and ident.behind_arguments:
            if (yield from self._scanner.match([self._data(ident.before)])) is None:
                return
            yield from self._scanner.until([b'"'], lambda _: None)

    def _say(self, data: bytes) -> None:
        self._give(ContentDelta(self._content.push(data)))

    def _say_last(self, *, keep: bool) -> None:
        self._give(ContentDelta(self._content.end(keep=keep)))

    def _give(self, delta: ContentDelta | ReasoningDelta) -> None:
        if delta.text:
            self._push(delta)


_RECIPIENT = re.compile(rf"to={re.escape(FUNCTION)}([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>")


class HarmonyScript:
    """How an answer in harmony is read."""

    def __init__(
        self, reading: ReaderSpec, scanner: Scanner, push: Callable[[Delta], None], new_id: Callable[[], str]
    ) -> None:
        self._reading, self._scanner, self._push, self._new_id = reading, scanner, push, new_id
        self._data = reading.spelling.data
        self._ends = [self._data(end) for end in _ENDS if end not in reading.spelling.ends]
        self._calls = 0
        self.is_thinking = reading.thinks == "open"
        self.is_stopped = False
        self._said: set[type[Delta]] = set()

    def run(self) -> Reads:
        """Read all."""
        if self._reading.thinks == "open":
            yield from self._prose(ReasoningDelta)
        while True:
            header: list[bytes] = []
            if (yield from self._scanner.until([self._data("<|message|>")], header.append)) is None:
                return  # what ends within a header has nothing to say
            text = self._reading.spelling.written(b"".join(header)).removeprefix(ASSISTANT)
            recipient, channel = _RECIPIENT.search(text), _CHANNEL.search(text)
            if recipient is not None and recipient[1] in self._reading.arguments:
                yield from self._call(recipient[1])
            else:
                yield from self._prose(ReasoningDelta if channel and channel[1] == "analysis" else ContentDelta)
            if self._scanner.ended and not self._scanner.data:
                return

    def _call(self, name: str) -> Reads:
        index, self._calls = self._calls, self._calls + 1
        self._push(CallDelta(index, self._new_id(), name))
        prose = Prose(strip=True)

        def push(data: bytes) -> None:
            if text := prose.push(data):
                self._push(ArgumentsDelta(index, text))

        if (yield from self._scanner.value(push)):
            self._push(CallEndDelta(index))
        yield from self._scanner.until(self._ends, lambda _: None)

    def _prose(self, kind: type[ContentDelta] | type[ReasoningDelta]) -> Reads:
        """A text to its end; several of a kind are parted by a line break."""
        prose = Prose(strip=kind is ReasoningDelta)

        def push(text: str) -> None:
            if text:
                self._push(kind(f"\n{text}" if kind in parted else text))
                parted.clear()
                self._said.add(kind)

        parted = {kind} & self._said
        self.is_thinking = kind is ReasoningDelta
        yield from self._scanner.until(self._ends, lambda data: push(prose.push(data)))
        self.is_thinking = False
        push(prose.end(keep=kind is ContentDelta))


_ALNUM = string.ascii_letters + string.digits


class AnswerReader:
    """Reads one answer. What it finds does not depend on how the stream is split; of no text it raises anything.

    reasoning_tokens: how many tokens were thinking, of those that `feed` took, with the markers around it
    """

    def __init__(self, reading: ReaderSpec, new_id: Callable[[], str] | None = None) -> None:
        length = reading.family.id_length
        self._new_id = new_id or (lambda: random_id(length))
        self._vocabulary = reading.spelling.vocabulary
        self._scanner = Scanner()
        self._found: list[Delta] = []
        self._all: list[Delta] = []
        self.reasoning_tokens = 0
        script = HarmonyScript if reading.family.name == "harmony" else Script
        self._script = script(reading, self._scanner, self._found.append, self._new_id)
        self._steps: Reads | None = self._script.run()

    def feed(self, ids: Iterable[int]) -> list[Delta]:
        """What comes of these tokens, EOS not among them. Raises OptionError for what are no token ids."""
        found: list[Delta] = []
        for token in ids:
            was_thinking = self._script.is_thinking
            found += self.feed_bytes(self._vocabulary.decode((token,)))
            self.reasoning_tokens += was_thinking or self._script.is_thinking
        return joined(found)

    def feed_bytes(self, data: bytes) -> list[Delta]:
        """What comes of these bytes, in which tokens of their own are as `marker_bytes` says."""
        self._scanner.data += data
        return self._go_on()

    def finish(self) -> list[Delta]:
        """What comes when there is no more."""
        self._scanner.ended = True
        return self._go_on()

    @property
    def message(self) -> ParsedMessage:
        """All that was read so far."""
        return replace(message_of(self._all), stopped=self._script.is_stopped)

    def _go_on(self) -> list[Delta]:
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        found = joined(self._found)
        self._found.clear()
        self._all += found
        return found


def random_id(length: int) -> str:
    """The id of a call: so many letters and digits, or as OpenAI's if 0."""
    if not length:
        return f"call_{fresh_bits(96):024x}"
    return "".join(_ALNUM[fresh_bits(32) % len(_ALNUM)] for _ in range(length))
