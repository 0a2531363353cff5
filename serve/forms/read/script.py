"""The order in which an answer is read: thinking, content up to a call, calls, and content again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from ....guides.protocol import DEAD, ByteGuide
from ..answer import LINES, leads_of
from ..calls import quoted
from ..families import Frame
from .deltas import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, Prose, ReasoningDelta
from .plain import read_parameters
from .reading import Reading
from .scanner import Reads, Scanner


class Script:
    """How an answer is read in all forms but harmony."""

    def __init__(
        self, reading: Reading, scanner: Scanner, push: Callable[[Delta], None], new_id: Callable[[], str]
    ) -> None:
        self._reading, self._scanner, self._push, self._new_id = reading, scanner, push, new_id
        self._content = Prose(strip=False)
        self._calls = 0
        self.is_thinking = reading.thinks == "open" and reading.family.thinking is not None
        self._ids: set[str] = set()
        self._known: dict[Frame, dict[bytes, tuple[str, bytes]]] = {}
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

    def _head(self, frame: Frame) -> bytes:
        return self._data(frame.opening, frame.head)

    def _framed(self, frame: Frame, head: bytes) -> Reads:
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

    def _call(self, frame: Frame, head: bytes) -> Generator[None, None, bool]:
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

    def _names(self, frame: Frame) -> dict[bytes, tuple[str, bytes]]:
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

    def _begin(self, frame: Frame, name: str, ident: str) -> int:
        self._say_last(keep=False)
        index, self._calls = self._calls, self._calls + 1
        written = frame.ident.written.format(name=name, id=ident) if ident and frame.ident else self._new_id()
        if written in self._ids:  # two calls of a model that miscounts
            written = self._new_id()
        self._ids.add(written)
        self._push(CallDelta(index, written, name))
        return index

    def _arguments(self, frame: Frame, name: str, index: int) -> Generator[None, None, bool]:
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

    def _pass_ident(self, frame: Frame) -> Reads:
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
