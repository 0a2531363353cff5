"""An incremental reader of a model's tool-call format. It returns content, thinking and calls."""

from __future__ import annotations

import codecs
import json
import string
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...engine.decode.randomness import fresh_bits
from ...guides.protocol import DEAD, ByteGuide
from .arguments import ParameterValue
from .deltas import (
    TOKENS,
    ArgumentsDelta,
    CallDelta,
    CallEndDelta,
    ContentDelta,
    Delta,
    ParsedMessage,
    ReasoningDelta,
    TextDecoder,
    merge,
    message_of,
)
from .formats import ARGUMENTS, IDENT, CallFrame, Parameters
from .grammar import LINES, AnswerGrammar, Thinks
from .harmony import HarmonyGrammar, HarmonyScript
from .scanner import Reads, Scanner


def read_parameters(
    scanner: Scanner,
    form: Parameters,
    values: Mapping[str, ParameterValue],
    data: Callable[[str], bytes],
    tail: bytes,
    push: Callable[[bytes], None],
) -> Generator[None, None, bool]:
    """Convert parameters up to the tail, which is not consumed, to a JSON object. Return True if the tail came.

    data: returns the bytes of a text with markers
    """
    before, end = data(form.before), data(form.end)
    behind_name, behind_text = data(form.behind_name), data(form.behind_text)
    behind = [behind_name, behind_text] if behind_text else [behind_name]
    push(b"{")
    comma = ""
    while True:
        yield from scanner.blanks()
        found = yield from scanner.match([before, tail])
        if found == tail:
            push(b"}")
            scanner.data[:0] = tail
        if found != before:
            return found == tail
        name: list[bytes] = []
        found = yield from scanner.until(behind, name.append)
        if found is None:
            return False
        key = b"".join(name).translate(None, TOKENS).decode(errors="replace")
        push(f"{comma}{_dump(key)}: ".encode())
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
        value_parts: list[bytes] = []
        if behind_text or (value is not None and value.as_text is None):  # JSON strings may contain the end
            is_ended = yield from scanner.unquoted(end, value_parts.append)
        else:
            is_ended = (yield from scanner.until([end], value_parts.append)) is not None
        if not is_ended:
            return False
        text = b"".join(value_parts).translate(None, TOKENS).decode(errors="replace")
        push(_as_json(text.removesuffix("\n") if form.own_line else text, value).encode())


class _String:
    """The inside of a JSON string, built incrementally. own_line: a line break at its end is dropped"""

    def __init__(self, push: Callable[[bytes], None], own_line: bool) -> None:
        self._push = push
        self._own_line = own_line
        self._held = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> None:
        text = self._held + self._decoder.decode(data.translate(None, TOKENS))
        stripped = text.removesuffix("\n") if self._own_line else text
        self._held = text[len(stripped) :]
        self._push(_dump(stripped)[1:-1].encode())

    def end(self) -> None:
        text = self._decoder.decode(b"", True)
        self._push(_dump(self._held + text if text else "")[1:-1].encode())


def _as_json(text: str, value: ParameterValue | None) -> str:
    """Return a value as JSON: unchanged if it is JSON, else as a string."""
    if value is not None and not value.is_json(text):
        return _dump(text)
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _dump(text)
    return text


def _refuse_constant(text: str) -> Any:
    raise ValueError(text)


def _dump(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Script:
    """The parser of all formats but harmony.

    is_only_calls: there is no thinking, and an answer that begins like a call is one
    """

    def __init__(
        self,
        grammar: AnswerGrammar,
        scanner: Scanner,
        push: Callable[[Delta], None],
        new_id: Callable[[], str],
        *,
        is_only_calls: bool = False,
    ) -> None:
        self._grammar, self._scanner, self._push, self._new_id = grammar, scanner, push, new_id
        self._thinks: Thinks = "no" if is_only_calls or grammar.family.thinking is None else grammar.spec.thinks
        self._is_ambiguous = grammar.is_ambiguous and not is_only_calls
        self._content = TextDecoder(strip=False)
        self._calls = 0
        self.is_thinking = self._thinks == "open"
        self._ids: set[str] = set()
        self._names_by_frame: dict[CallFrame, dict[bytes, tuple[str, bytes]]] = {}
        self._data = grammar.spelling.data
        self.is_stopped = self._has_thought = False
        self._stops = [text.encode() for text in grammar.spec.stop]

    def run(self) -> Reads:
        """Parse the whole answer."""
        grammar, family = self._grammar, self._grammar.family
        if self._thinks != "no" and family.thinking is not None:
            begin, end = map(self._data, family.thinking)
            if self._thinks == "open" or (yield from self._scanner.match([begin])):
                yield from self._think(end)
        if family.trigger and grammar.callable and grammar.answer is None:
            yield from self._read_triggered(self._data(family.trigger))
        else:
            if grammar.callable:
                yield from self._leading_calls()
            if self._has_thought and not self._calls and grammar.answer is not None:
                yield from self._skip_lines(grammar.answer)
            self.is_stopped = (yield from self._scanner.until(self._stops, self._push_content)) is not None
        self._end_content(keep=True)
        yield from self._scanner.until([], lambda _: None)

    def _think(self, end: bytes) -> Reads:
        prose = TextDecoder(strip=True)
        self.is_thinking = True
        yield from self._scanner.until([end], lambda data: self._push_text(ReasoningDelta(prose.push(data))))
        self.is_thinking = False
        self._push_text(ReasoningDelta(prose.end(keep=False)))
        self._has_thought = True
        self._content.strip = self._grammar.answer is None

    def _read_triggered(self, trigger: bytes) -> Reads:
        """Parse content in which a marker begins calls."""
        heads = {self._data(frame.head)[len(trigger) :]: frame for frame in self._grammar.family.frames}
        while (found := (yield from self._scanner.until([trigger, *self._stops], self._push_content))) == trigger:
            head = yield from self._scanner.match(heads)
            if head is None:
                self._push_content(trigger)
            else:
                yield from self._read_frame(heads[head], trigger + head)
        self.is_stopped = found is not None

    def _leading_calls(self) -> Reads:
        """Parse calls if the text begins with one."""
        leads = [b""]
        if self._grammar.answer is None:
            yield from self._scanner.blanks()  # content does not begin with blanks
        else:
            leads = self._grammar.leads(has_thought=self._has_thought)
        frames = self._grammar.family.frames
        heads = {lead + self._data(frame.head): (lead, frame) for frame in frames for lead in leads}
        found = yield from self._scanner.match(heads)
        if found is None:
            return
        lead, frame = heads[found]
        head = self._data(frame.head)
        if not self._is_ambiguous:
            yield from self._read_frame(frame, head)
            return
        parts = [head]
        yield from self._scanner.until([], parts.append)
        if not self._parse_calls(b"".join(parts)):
            self._scanner.data[:0] = lead + b"".join(parts)

    def _parse_calls(self, data: bytes) -> bool:
        """Parse a whole text as calls. Return False, without any effect, if it contains anything else."""
        deltas: list[Delta] = []
        scanner = Scanner()
        scanner.data, scanner.ended = bytearray(data), True
        for _ in Script(self._grammar, scanner, deltas.append, self._new_id, is_only_calls=True).run():
            raise AssertionError("nothing is waited for where all is there")
        started = sum(isinstance(delta, CallDelta) for delta in deltas)
        completed = sum(isinstance(delta, CallEndDelta) for delta in deltas)
        if started != completed or any(isinstance(delta, ContentDelta) for delta in deltas):
            return False
        for delta in deltas:
            self._push(delta)
        self._calls += started
        return True

    def _skip_lines(self, answer: ByteGuide) -> Reads:
        """Skip line breaks between thinking and an answer, except for those that the answer itself begins with."""
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
        complete = [passed for passed in left if answer.is_accepting(ways[passed])]
        del self._scanner.data[: next(iter(complete or left), 0)]

    def _read_frame(self, frame: CallFrame, head: bytes) -> Reads:
        """Parse calls, from the name of the first one on."""
        more, closing = self._data(frame.between, frame.call_head), self._data(frame.closing)
        options = [more] if not closing else [more, closing]
        while (yield from self._call(frame, head)):
            head = more
            if frame.is_single:
                return
            found = yield from self._scanner.match(options)
            if found != more:
                return

    def _call(self, frame: CallFrame, head: bytes) -> Generator[None, None, bool]:
        """Parse a call from its name on. Return False if it is none; its text is content."""
        found = yield from self._scanner.match(self._names(frame))
        if found is None:
            self._push_content(head)
            return False
        name, follows = self._names(frame)[found]
        self._scanner.data[:0] = follows
        consumed, ident = head + found.removesuffix(follows), b""
        at = frame.after_name.index(ARGUMENTS)
        for number, part in enumerate(frame.after_name[:at]):
            read: list[bytes] = []
            if part == IDENT:
                is_read = yield from self._ident(frame, self._data(frame.after_name[number + 1]), read)
                ident = b"".join(read[1:])
            else:
                is_read = yield from self._text(self._data(part), read)
            consumed += b"".join(read)
            if not is_read:
                self._push_content(consumed)
                return False
        index = self._begin(frame, name, ident.decode(errors="replace"))
        is_read = yield from self._arguments(frame, name, self._data(*frame.after_name[at + 1 :][-1:]), index)
        for part in frame.after_name[at + 1 :] if is_read else ():
            # an id after the arguments comes too late to be used
            is_read = yield from self._ident(frame, b"", []) if part == IDENT else self._text(self._data(part), [])
            if not is_read:
                break
        if is_read:
            self._push(CallEndDelta(index))
        self._content = TextDecoder(strip=True)
        return is_read

    def _names(self, frame: CallFrame) -> dict[bytes, tuple[str, bytes]]:
        """Return the names of tools as written, followed by the next text: for each the tool and that text."""
        if frame not in self._names_by_frame:
            ends = list(map(self._data, frame.behind_name))
            self._names_by_frame[frame] = {
                self._data(self._grammar.name_of(tool, frame)) + end: (tool.name, end)
                for tool in self._grammar.callable
                for end in ends
            }
        return self._names_by_frame[frame]

    def _text(self, text: bytes, read: list[bytes]) -> Generator[None, None, bool]:
        found = yield from self._scanner.match([text])
        read.append(found or b"")
        return found is not None

    def _ident(self, frame: CallFrame, follows: bytes, read: list[bytes]) -> Generator[None, None, bool]:
        """Parse an optional id. Return True if it is complete or missing. read: receives its lead and its pieces"""
        assert frame.ident is not None
        before = yield from self._scanner.match([self._data(frame.ident.before)])
        if before is None:
            return True
        read.append(before)
        stop = yield from self._scanner.until([self._data(frame.ident.behind) or follows], read.append)
        if stop is not None and not frame.ident.behind:
            self._scanner.data[:0] = stop
        return stop is not None

    def _begin(self, frame: CallFrame, name: str, ident: str) -> int:
        self._end_content(keep=False)
        index, self._calls = self._calls, self._calls + 1
        call_id = frame.ident.template.format(name=name, id=ident) if ident and frame.ident else self._new_id()
        if call_id in self._ids:  # a model may repeat an id
            call_id = self._new_id()
        self._ids.add(call_id)
        self._push(CallDelta(index, call_id, name))
        return index

    def _arguments(self, frame: CallFrame, name: str, tail: bytes, index: int) -> Generator[None, None, bool]:
        """Parse the arguments of a call. Return True if they are complete. tail: the text after them"""
        prose = TextDecoder(strip=True)

        def push(data: bytes) -> None:
            if text := prose.push(data):
                self._push(ArgumentsDelta(index, text))

        if frame.parameters is None:
            return (yield from self._scanner.value(push))
        values = self._grammar.arguments[name].values
        return (yield from read_parameters(self._scanner, frame.parameters, values, self._data, tail, push))

    def _push_content(self, data: bytes) -> None:
        self._push_text(ContentDelta(self._content.push(data)))

    def _end_content(self, *, keep: bool) -> None:
        self._push_text(ContentDelta(self._content.end(keep=keep)))

    def _push_text(self, delta: ContentDelta | ReasoningDelta) -> None:
        if delta.text:
            self._push(delta)


_ALNUM = string.ascii_letters + string.digits


class AnswerReader:
    """Reads one answer. The result does not depend on how the stream is split, and no text raises an exception.

    reasoning_tokens: number of thinking tokens passed to `feed`, markers included
    """

    def __init__(self, grammar: AnswerGrammar, new_id: Callable[[], str] | None = None) -> None:
        length = grammar.family.id_length
        self._vocabulary = grammar.spelling.vocabulary
        self._scanner = Scanner()
        self._new_deltas: list[Delta] = []
        self._deltas: list[Delta] = []
        self.reasoning_tokens = 0
        script = HarmonyScript if isinstance(grammar, HarmonyGrammar) else Script
        self._script = script(grammar, self._scanner, self._new_deltas.append, new_id or (lambda: random_id(length)))
        self._steps: Reads | None = self._script.run()

    def feed(self, ids: Iterable[int]) -> list[Delta]:
        """Read tokens without EOS. Raises OptionError for invalid token ids."""
        found: list[Delta] = []
        for token in ids:
            was_thinking = self._script.is_thinking
            found += self.feed_bytes(self._vocabulary.decode((token,)))
            self.reasoning_tokens += was_thinking or self._script.is_thinking
        return merge(found)

    def feed_bytes(self, data: bytes) -> list[Delta]:
        """Read bytes, with special tokens encoded as by `marker_bytes`."""
        self._scanner.data += data
        return self._advance()

    def finish(self) -> list[Delta]:
        """Read to the end: no more tokens come."""
        self._scanner.ended = True
        return self._advance()

    @property
    def message(self) -> ParsedMessage:
        """The message read so far."""
        return replace(message_of(self._deltas), stopped=self._script.is_stopped)

    def _advance(self) -> list[Delta]:
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        found = merge(self._new_deltas)
        self._new_deltas.clear()
        self._deltas += found
        return found


def random_id(length: int) -> str:
    """Return a random call id: a number of letters and digits, or OpenAI's format for 0."""
    if not length:
        return f"call_{fresh_bits(96):024x}"
    return "".join(_ALNUM[fresh_bits(32) % len(_ALNUM)] for _ in range(length))
