"""Small guides that call every kernel of guides: counted and plain loops, narrow and wide states, closing masks.

Some build what many schemas have in common, and the process keeps, so that no request of a server waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..guides import (
    AlignedGuide,
    ChoiceGuide,
    FreeGuide,
    GoalGuide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
)
from ..guides.graph.text_tree import text_tree
from ..guides.healing import Crossings
from ..tokenizers_adapter import Vocabulary

Thunks = list[tuple[str, Callable[[], object]]]
_OBJECT_OF_TWO = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
_MANY_NAMES = {"type": "object", "properties": {f"{number:03}": {"type": "null"} for number in range(100)}}
_DIFFERENT_STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_HOSTS = {"type": "array", "items": {"format": "hostname", "type": "string"}}
_USUAL_FORMATS = "date", "time", "date-time", "email", "ipv4", "ipv6", "uri", "uuid"
_USUAL_VALUES = {"type": "integer"}, *({"type": "string", "format": each} for each in _USUAL_FORMATS)
_JOINED_PATTERNS = {"pattern": "a", "not": {"pattern": "b"}}


def guide_thunks() -> Thunks:
    """Return named calls of the kernels of guides. The second one creates the guides for those after it."""
    vocabulary, pairs = _vocabulary(), Vocabulary([b"a", b"aa", None], [2])
    guides: dict[str, RegexGuide] = {}

    def make() -> None:
        for pattern in ('[^"]*"[^"]*"', '([^"]{2,})*"', ".{3,90}", "é[0-9]+"):
            guides[pattern] = RegexGuide(pattern, vocabulary)

    def use(action: Callable[[RegexGuide, int, int], object]) -> Callable[[], None]:
        def run() -> None:
            for guide in guides.values():
                state = guide.start
                for token in 'aaé0"0"'.encode():
                    action(guide, state, token)
                    state = max(guide.advance(state, token), guide.start)

        return run

    return [
        ("guides: texts", lambda: (text_tree([b"aa", b"ab"]), ChoiceGuide(["a"], pairs))),
        ("guides: making", make),
        ("guides: advancing", use(lambda guide, state, token: guide.advance(state, token))),
        ("guides: masks", use(lambda guide, state, token: guide.mask(state))),
        ("guides: masks beside others", lambda: _write_beside(vocabulary)),
        ("guides: distances", use(lambda guide, state, token: guide.fits(state, guide.distance(state)))),
        ("guides: closing", use(lambda guide, state, token: guide.mask_within(state, guide.distance(state) + 1))),
        ("guides: aligning", lambda: _align(guides["é[0-9]+"], pairs)),
        ("guides: goals", lambda: GoalGuide(FreeGuide(vocabulary), "ab").mask(0)),
        ("guides: all states", lambda: guides["é[0-9]+"].dfa()),
        ("guides: all masks", lambda: guides["é[0-9]+"].precompile()),
        ("guides: quoting in JSON", lambda: _begin_json({"x-quote": "a"}, '"', vocabulary, {"a": "a b"})),
        ("guides: objects of JSON", lambda: _begin_json(_OBJECT_OF_TWO, "{", vocabulary)),
        ("guides: many names of JSON", lambda: _begin_json(_MANY_NAMES, "{", vocabulary)),
        ("guides: numbers of JSON", lambda: _begin_json({"minimum": 2}, "", vocabulary)),
        ("guides: usual values of JSON", lambda: [_begin_json(each, "", vocabulary) for each in _USUAL_VALUES]),
        ("guides: formats of JSON", lambda: _begin_json(_HOSTS, '["a', vocabulary)),
        ("guides: patterns of JSON, joined", lambda: JSONGuide(_JOINED_PATTERNS, vocabulary)),
        ("guides: strings that differ", lambda: _write_different_strings(vocabulary)),
        ("guides: making room", lambda: _make_room(guides['[^"]*"[^"]*"'])),
    ]


def quoting_thunks() -> Thunks:
    """Return calls of the kernels of quoting, with and without limits."""
    limits: list[dict[str, Any]] = [{}, {"max_chars": 3}]
    vocabulary = _vocabulary()

    def quote(guide: SubstringGuide) -> None:
        state = guide.advance(guide.start, ord("a"))
        guide.mask_within(state, guide.distance(state) + 1)
        guide.places("a b")

    return [("guides: quoting", lambda: [quote(SubstringGuide("a b", vocabulary, **options)) for options in limits])]


def _vocabulary() -> Vocabulary:
    """Return bytes and two longer tokens: one shortens paths of single bytes, the other begins an item."""
    single = Vocabulary.from_bytes()
    return Vocabulary([*single.tokens, b"aa", b'","'], single.eos_ids)


def _align(guide: RegexGuide, pairs: Vocabulary) -> None:
    aligned = AlignedGuide(guide, b"a")
    aligned.row(aligned.start)
    aligned.distance(aligned.start)
    Crossings(FreeGuide(pairs)).cut([0])


def _begin_json(schema: Any, prefix: str, vocabulary: Vocabulary, contexts: dict[str, str] | None = None) -> None:
    guide = JSONGuide(schema, vocabulary, contexts=contexts)
    guide.mask(guide.read(guide.start, prefix.encode()))


def _write_different_strings(vocabulary: Vocabulary) -> None:
    guide = JSONGuide(_DIFFERENT_STRINGS, vocabulary)
    for text in (b'["ab","b"]', b'["ab","b"]', b'["b","b'):
        state = guide.start
        for token in text:
            guide.mask(state)
            state = guide.advance(state, token)
    guide.read(guide.read(guide.start, b'["'), b'a"')


def _write_beside(vocabulary: Vocabulary) -> None:
    guide = RegexGuide('(?!ab)[^"]*"', vocabulary)
    for state in (guide.read(guide.start, b"c"), guide.start):
        guide.mask(state)


def _make_room(guide: RegexGuide) -> None:
    state, states = guide.read(guide.start, b"a"), [guide.start]
    for token in b'a"a"':
        states.append(guide.advance(states[-1], token))
    for _ in range(2):
        guide.automaton.collect(0)
    for each in (state, *states):
        guide.mask(each)
