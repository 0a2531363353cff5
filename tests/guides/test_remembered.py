"""What is remembered: the values used last, within a number and a weight that is taken again while they grow."""

import gc
import weakref

import pytest
from trellm import Vocabulary
from trellm.guides import JSONGuide
from trellm.guides.cached import LRUCache

from ..thresholds import thresholds


def test_the_values_used_last_are_kept() -> None:
    kept: LRUCache[list[int]] = LRUCache(len, 2, 100)
    kept.add("a", [1])
    kept.add("b", [2])
    assert kept.get("a") == [1]
    kept.add("c", [3])
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ([1], None, [3])
    first = kept.add("c", [4])
    assert first == [3] and kept.add("c", [4], instead=[3]) is first and kept.get("c") is first
    assert kept.add("c", [4, 5], instead=first) == [4, 5] == kept.get("c") and len(kept) == 2


def test_what_grows_is_forgotten_when_it_is_weighed_again() -> None:
    kept: LRUCache[list[int]] = LRUCache(len, 100, 50)
    grown: list[int] = []
    kept.add("grown", grown)
    kept.add(0, [0])
    grown.extend(range(60))
    for number in range(1, 3):
        kept.add(number, [number])
    assert kept.get("grown") is None and kept.get(0) == [0]


def test_the_last_is_kept_whatever_it_weighs() -> None:
    kept: LRUCache[list[int]] = LRUCache(len, 3, 1)
    for number in range(5):
        kept.add(number, [0, 0])
        assert kept.get(number) == [0, 0] and len(kept) == 1


def test_guides_that_are_forgotten_leave_nothing_to_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary.from_bytes()
    items = {"type": "array", "items": {"$ref": "#"}, "minItems": 1}
    members = {"a": {"type": "object", "required": ["b"], "minProperties": 2}, "c": items, "d": {"x-quote": "text"}}
    schema = {"$id": "http://a.b/c", "properties": members, "patternProperties": {"^x": {"not": {"const": 1}}}}
    # Only the guide made last is remembered.
    thresholds(monkeypatch, remembered_schemas=1)
    gone: list[weakref.ref[object]] = []
    was_running = gc.isenabled()
    gc.disable()
    try:
        for number in range(3):  # the first one may have kernels compiled, which remembers what it was asked for
            guide = JSONGuide({**schema, "$comment": str(number)}, vocabulary, contexts={"text": "a word"})
            state = guide.read(guide.start, b'{"a": {"b": 1, "c": 2}, "c": [{}], "x": 2}')
            assert guide.mask(state).any() and guide.distance(guide.start)
            if number:
                gone += [weakref.ref(part) for part in (guide, guide.schema, guide.schema.documents)]
            del guide
        JSONGuide(True, vocabulary)
        assert [part() for part in gone] == [None] * len(gone)
    finally:
        if was_running:
            gc.enable()
