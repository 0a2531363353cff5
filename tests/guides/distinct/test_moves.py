"""What is remembered of places in which tokens do the same, against a guide that remembers nothing yet."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.guides import DEAD, tokens_of
from trellm.guides.distinct.trail import JSONTrails

from ..json_schema.test_unique_items import END, SCHEMAS, STRINGS, VOCABULARY, guide_of


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_what_is_remembered_of_places_says_what_reading_anew_says(number: int) -> None:
    """ChartSteps and masks that are told by the places of other texts, against a guide that reads each text at once."""
    schema, random = SCHEMAS[number], Random(number)
    guide = guide_of(schema, whitespace="compact")
    letters = set(b'ab01"[]{},:truefals.e-')
    for text in range(8):
        state, data = guide.start, b""
        anew = guide_of({**schema, "title": f"anew {number} {text}"}, whitespace="compact")
        for _ in range(30):
            mask = guide.mask(state)
            again = anew.read(anew.start, data)
            assert np.array_equal(mask, anew.mask(again)), data
            assert guide.is_accepting(state) == anew.is_accepting(again)
            allowed = tokens_of(mask)
            few = [each for each in allowed if set(VOCABULARY.tokens[each] or b"") <= letters]
            token = random.choice(few or allowed)
            if token == END:
                break
            state, data = guide.advance(state, token), data + (VOCABULARY.tokens[token] or b"")


OPTIONAL = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "additionalProperties": False}
ONE = {"properties": {"ab": {"const": "a"}}, "required": ["ab"], "additionalProperties": False}
EITHER = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "array"}}}]}


@pytest.mark.parametrize(
    ("items", "pieces"),
    [
        (OPTIONAL, ["[", "{", "},", "{", "}"]),
        (OPTIONAL, ["[", "{}", ",", '{"', "a", '":', '"', "ab", '"},', "{}"]),
        (OPTIONAL, ['[{"', "a", '":', '"', "ab", '"},', '{"', "a", '":', '"', "a", "b", '"},']),
        (OPTIONAL, ['[{"', "b", '":1', "},", '{"', "b", '":1', ".", "0", "}"]),
        (ONE, ["[", '{"', "ab", '":', '"', "a", '"},', '{"']),
        (EITHER, ['["', "a", "\\", '"', '",', '"', "b", "\\", '"', "b", '",', '{"', "a", '":', "[", "]", "},"]),
        (EITHER, ['["', "a", '",', '"', "a", "b", '","', "a", '"', "]"]),
        ({"type": "string"}, ['["', '","', "a", '",', '"",""']),
        (STRINGS, ["[", '["', "a", '"],', "[]", ",", '["', "a", '"]']),
    ],
)
@pytest.mark.parametrize("is_asked", [True, False])
def test_texts_that_are_read_late_go_on_as_those_that_are_read_at_once(
    items: Any, pieces: list[str], is_asked: bool
) -> None:
    """Items that end within a token, are empty, or equal to one before; with masks on the way and without."""
    schema = {"type": "array", "items": items, "uniqueItems": True}
    guide = guide_of({**schema, "title": "late"}, whitespace="compact")
    state, data = guide.start, b""
    for piece in pieces:
        token = VOCABULARY.tokens.index(piece.encode()) if piece.encode() in VOCABULARY.tokens else None
        if is_asked:
            anew = guide_of({**schema, "title": f"anew {data!r}"}, whitespace="compact")
            again = anew.read(anew.start, data)
            assert np.array_equal(guide.mask(state), anew.mask(again)), data
        after = guide.read(state, piece.encode()) if token is None else guide.advance(state, token)
        once = guide_of({**schema, "title": f"once {data!r} {piece}"}, whitespace="compact")
        read = once.read(once.start, data + piece.encode())
        assert (after == DEAD) == (read == DEAD), data + piece.encode()
        if after == DEAD:
            break
        state, data = after, data + piece.encode()
        assert guide.distance(state) == once.distance(read), data


def test_a_text_within_an_item_goes_on_in_several_ways() -> None:
    guide = guide_of({"type": "array", "items": OPTIONAL, "uniqueItems": True, "title": "back"}, whitespace="compact")
    first = guide.read(guide.start, b'[{"a":"ab"},{"a":"')
    ways = {text: guide.read(first, text) for text in (b"ab", b"a", b"b")}
    assert {text: guide.read(first, text) for text in ways} == ways
    for text, state in ways.items():
        ends = guide.read(state, b'"}]')
        assert (ends == DEAD) == (text == b"ab")
        assert ends == DEAD or guide.is_accepting(ends)


@pytest.mark.parametrize("is_open", [False, True])
def test_within_a_settled_item_texts_are_read_for_names_alone(is_open: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that begin and end there, and members of listed names, are told by the chart."""
    text, properties = {"type": "string"}, dict[str, Any]()
    properties |= {"a": text, "b": {"type": "array", "items": text}, "ab": {"type": "number"}}
    items = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": is_open}
    schema = {"type": "array", "items": items, "uniqueItems": True, "title": f"settled {is_open}"}
    guide = guide_of(schema, whitespace="compact")
    read, texts = JSONTrails.read, list[bytes]()

    def noted(self: JSONTrails, trail: Any, data: bytes, *rest: Any) -> Any:
        texts.append(data)
        return read(self, trail, data, *rest)

    monkeypatch.setattr(JSONTrails, "read", noted)
    state = guide.start
    for number, first in enumerate(("a", "ab", "b")):
        state = guide.read(state, b"," if number else b"[")
        for piece in ('{"', "a", '":', '"', *first, '",', '"', "b", '":', '["', "a", '"', "]", ","):
            if piece == '["':
                texts.clear()
            state = guide.advance(state, VOCABULARY.tokens.index(piece.encode()))
            guide.mask(state)
        assert number == 0 or len(texts) <= is_open
        state = guide.read(state, b'"ab":1}')
    assert guide.is_accepting(guide.read(state, b"]"))
