"""Arrays of strings that must differ, and names: against sets of Python's, and in any order."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import Limits, Vocabulary
from trellm.errors import LimitError, StateError
from trellm.guides import DEAD, JSONGuide, laws
from trellm.guides.limits import Meter

from ..json_schema.test_unique_items import END, VOCABULARY

STRINGS: Any = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
NAMES: Any = {"type": "object", "additionalProperties": {"type": ["string", "number"]}, "minProperties": 2}


def guide_of(schema: Any, title: str, **options: Any) -> Any:
    return JSONGuide({**schema, "title": title}, VOCABULARY, whitespace="compact", **options)


def tokens_for(text: str, random: Random) -> list[int]:
    """Tokens that spell a text, some of more than one byte."""
    data, found = text.encode(), list[int]()
    known = {each: token for token, each in enumerate(VOCABULARY.tokens) if each and token != END}
    while data:
        sizes = [size for size in range(1, 6) if data[:size] in known and len(data) >= size]
        size = random.choice(sizes)
        found.append(known[data[:size]])
        data = data[size:]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_texts_are_read_exactly_if_nothing_is_there_twice(seed: int) -> None:
    """Few letters, so that strings begin alike, end in one another and come again, in several texts of one guide."""
    random, names = Random(seed), seed % 2 == 1
    guide = guide_of(NAMES if names else STRINGS, f"exactly {seed}")
    for _ in range(60):
        strings = ["".join(random.choice('ab"\\é') for _ in range(random.randint(0, 3))) for _ in range(5)]
        parts = [json.dumps(each, ensure_ascii=False) for each in strings]
        if names:
            parts = [part + ":" + random.choice(("1", '"a"', '"b\\\\"')) for part in parts]
        text = ("{" if names else "[") + ",".join(parts) + ("}" if names else "]")
        state = guide.start
        for token in tokens_for(text, random):
            allowed = bool(guide.mask(state)[token >> 5] >> (token & 31) & 1)
            state = guide.advance(state, token)
            assert allowed == (state != DEAD), text
            if state == DEAD:
                break
        assert (state != DEAD and guide.is_accepting(state)) == (len(set(strings)) == len(strings)), text


@pytest.mark.parametrize("schema", [STRINGS, NAMES])
def test_places_of_one_guide_in_any_order_are_those_of_another_in_order(schema: Any) -> None:
    """Sets go on in several ways, from places left long ago: all tell what a fresh reading of the text tells."""
    random = Random(5)
    guide, fresh = guide_of(schema, "any order"), guide_of(schema, "in order")
    open_, close = ('{"', '":"a"}') if schema is NAMES else ('["', '"]')
    between = '":1,"' if schema is NAMES else '","'
    places: list[tuple[int, list[str]]] = [(guide.read(guide.start, open_.encode()), [])]
    for _ in range(150):
        state, strings = random.choice(places)
        string = "".join(random.choice("ab") for _ in range(random.randint(0, 3)))
        for token in tokens_for(string + between, random):
            state = guide.advance(state, token)
            if state == DEAD:
                break
        assert (state == DEAD) == (string in strings)
        if state != DEAD:
            places.append((state, [*strings, string]))
    for state, strings in random.sample(places, 30):
        text = open_ + "".join(string + between for string in strings)
        other = fresh.read(fresh.start, text.encode())
        assert np.array_equal(guide.mask(state), fresh.mask(other)), text
        assert guide.distance(state) == fresh.distance(other)
        for last in ("a", "ab", "b"):
            ends = guide.read(state, (last + close).encode())
            assert (ends == DEAD) == (last in strings)
            assert ends == DEAD or guide.is_accepting(ends)


@pytest.mark.parametrize("number", [-1, len(VOCABULARY.tokens), 2**31, 2**70, -(2**70)])
def test_numbers_that_are_no_token_or_state_lead_nowhere(number: int) -> None:
    guide = guide_of(STRINGS, "no such number")
    state = guide.start
    for token in tokens_for('["ab","ba","a', Random(1)):
        state = guide.advance(state, token)
    assert guide.advance(state, number) == DEAD
    with pytest.raises(StateError):
        guide.advance(max(number, state + 1000), 1)


@pytest.mark.parametrize("schema", [STRINGS, NAMES])
def test_laws_hold_of_strings_and_names(schema: Any) -> None:
    laws.check(guide_of(schema, "laws"), seed=3, texts=3, tokens=16, sample=60)


def test_what_places_take_is_limited() -> None:
    guide = guide_of(STRINGS, "limited", limits=Limits(states=100))
    state = guide.read(guide.start, b'["')
    with pytest.raises(LimitError, match="more than 100 states"):
        for _ in range(1000):
            state = guide.advance(state, ord("a"))


def test_a_quote_behind_a_backslash_is_no_end_of_a_string_that_is_left() -> None:
    """Pairs that begin with "a" are used up, also where another one of the same beginning has a quote in it."""
    words: Any = {"enum": ['c"', "x", "a"]}
    pair = {"type": "array", "items": words, "uniqueItems": True, "minItems": 2, "maxItems": 2}
    guide = guide_of({"type": "array", "items": pair, "uniqueItems": True}, "quotes")
    begin = '[["a",%s],["a",%s],["'
    for first, second in (('"c\\""', '"x"'), ('"x"', '"c\\""')):
        state = guide.read(guide.start, (begin % (first, second)).encode())
        assert state != DEAD and guide.read(state, b'a"') == DEAD and guide.read(state, b"c") != DEAD
    laws.check(guide)


@pytest.mark.parametrize(
    ("item", "form"),
    [
        ({"type": "integer"}, "{}"),
        ({"type": "integer", "minimum": 0, "maximum": 9999}, "{}"),
        ({"type": "string", "maxLength": 6}, '"{:05d}"'),
        ({"type": "string", "pattern": "^[0-9]{5}$"}, '"{:05d}"'),
    ],
)
def test_an_item_after_many_takes_little_work(item: Any, form: str) -> None:
    """With tokens of several digits, the last 100 of 400 items take at most 40,000 steps each."""
    numbers = [text.encode() for size in (2, 3) for number in range(10**size) for text in (f"{number:0{size}d}",)]
    tokens = [*(bytes([byte]) for byte in range(256)), *numbers]
    known = {text: token for token, text in enumerate(tokens)}
    vocabulary = Vocabulary([*tokens, None], eos_ids=[len(tokens)])
    guide = JSONGuide({"type": "array", "items": item, "uniqueItems": True}, vocabulary, whitespace="compact")
    state = guide.start
    for part in (range(300), range(300, 400)):
        text = "".join(("," if number else "[") + form.format(number) for number in part).encode()
        with Meter() as meter:
            for data in re.findall(rb"[0-9]{1,3}|.", text):
                token = known[data]
                assert guide.mask(state)[token >> 5] >> (token & 31) & 1
                state = guide.advance(state, token)
            spent = meter.spent
    assert spent < 4_000_000
