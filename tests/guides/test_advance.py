"""States that guides give out: numbers from 0 on after allowed tokens, DEAD after others, however long they live."""

from collections.abc import Callable
from itertools import groupby
from random import Random

import pytest
from trellm import Vocabulary
from trellm.guides import (
    DEAD,
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    TaggedGuide,
    laws,
    tokens_of,
)

ENDS = [bytes((letter, *end)) for end in (b'"', b'",', b'","', b'":') for letter in range(35, 127) if letter != 92]
VOCABULARY = Vocabulary(
    [*(bytes((byte,)) for byte in range(256)), *ENDS, b"ab", b"ba", b"<t>", None], [259 + len(ENDS)]
)
UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
MIXED = {"type": "array", "uniqueItems": True, "items": {"type": ["string", "number", "boolean", "array", "object"]}}
MAKERS: dict[str, Callable[[], Guide]] = {
    "regex": lambda: RegexGuide('("[^"]{1,9}",){1,40}', VOCABULARY),
    "choice": lambda: ChoiceGuide(["ab", "aba", 'b",'], VOCABULARY),
    "grammar": lambda: CFGGuide('start: start "+" item | item\nitem: "(" start ")" | /[ab]{1,40}/', VOCABULARY),
    "quote": lambda: SubstringGuide('abab "a","b" "c": ba', VOCABULARY, boundary="character"),
    "JSON": lambda: JSONGuide({"type": "object"}, VOCABULARY),
    "unique strings": lambda: JSONGuide(UNIQUE, VOCABULARY),
    "unique addresses": lambda: JSONGuide({**UNIQUE, "items": {"type": "string", "format": "uri"}}, VOCABULARY),
    "unique in an object": lambda: JSONGuide({"properties": {"a": UNIQUE}}, VOCABULARY),
    "unique of many types": lambda: JSONGuide(MIXED, VOCABULARY),
    "names": lambda: JSONGuide({"additionalProperties": {"type": "string"}, "minProperties": 2}, VOCABULARY),
    "tagged": lambda: TaggedGuide([("<t>", JSONGuide({"type": "object"}, VOCABULARY), "")], VOCABULARY),
    "healed": lambda: AlignedGuide(JSONGuide(UNIQUE, VOCABULARY), b'["a'),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_guide_that_has_served_many_texts_gives_out_states_only_where_masks_allow_them(kind: str) -> None:
    random, guide = Random(kind), MAKERS[kind]()
    ends = range(256, 256 + len(ENDS))
    for _ in range(25):
        state = guide.start
        for _ in range(30):
            mask = guide.mask(state).copy()
            allowed = tokens_of(mask)
            for token in (
                random.sample(allowed, min(5, len(allowed))) + random.choices(ends, k=5) + [random.randrange(256)]
            ):
                after = guide.advance(state, token)
                assert after >= 0 if laws.allows(mask, token) else after == DEAD
            token = random.choice([each for each in allowed if each >= 256] or allowed)
            if not guide.vocabulary.tokens[token]:
                break
            state = guide.advance(state, token)


@pytest.mark.parametrize("before", range(4))
def test_a_step_for_which_arrays_grow_and_a_set_is_copied_leads_to_a_state(before: int) -> None:
    """Each end of a string makes another set of what was written, which is copied; after some hundred, arrays grow."""
    guide = JSONGuide({**UNIQUE, "title": f"{before}"}, VOCABULARY)
    state = guide.read(guide.start, b'["')
    allowed = [token for token in tokens_of(guide.mask(state)) if len(VOCABULARY.tokens[token] or b"") > 2]
    met, new = allowed[:91], allowed[91:]
    ways = [(letter, token) for letter in ("", *"abcdefg") for token in met][: 600 + before]
    for letter, tokens in groupby(ways, lambda way: way[0]):
        at = guide.read(state, letter.encode())
        for _, token in tokens:
            assert guide.advance(at, token) >= 0
    at = guide.read(state, b"z")
    for token in new:
        assert guide.advance(at, token) >= 0
