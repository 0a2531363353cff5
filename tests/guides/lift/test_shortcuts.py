"""Masks by way of loops, of usual states and of spans are those of plain walks."""

from random import Random

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import JSONGuide, RegexGuide
from trellm.guides.automata.charsets import negate
from trellm.guides.graph.spans import span_of
from trellm.guides.lift.lifted_guide import LiftedGuide
from trellm.guides.lift.tables import VocabularyTables
from trellm.guides.protocol import DEAD, tokens_of
from trellm.kernels.trie.loop_slice import LoopSlice

from ..naive_masks import naive_mask

CHARACTERS = ("a", "b", "z", "é", "’", "\u2028", "世", '"', '"', "\\", "n", ",", ":", " ", "{", "}", "1")
CHARACTER = r'([^"\\\x00-\x1F]|\\["\\n])'
PATTERNS = [
    *(f'"{CHARACTER}{{{least},{most}}}"[,:]?a*' for least in (0, 1, 3, 9) for most in ("", 9, 12, 40)),
    f'"({CHARACTER}{{0,5}}|[^"\\\\]{{2,11}})"[,:]?',
    f'"{CHARACTER}{{1,4}}{CHARACTER}{{0,6}}" *',
    f'"{CHARACTER}{{2,40}}{CHARACTER}{{3,40}}" *',
    f'"(abba|abz|b|é1|{CHARACTER}*)"(:"{CHARACTER}*")?',
    '"[^"]*ab1[^"]*"[,:]?',
    '"[^"\\\\a]*"[ab]?',
    '"[^"\\\\a][^"\\\\]*"[ab]?',
]
# All characters but some above ASCII, or all that begin with some bytes only
SETS = ['[^"\u2028]', '[^"\u2028é]', '[^"\u4e00-\u9fff]', "[a-z1\u2000-\u2fff :{},]", "[a-z1 :{},éè\u3000-\U0010ffff]"]
SCHEMAS = [
    {"properties": {"ab": {}, "aba": {"maxLength": 3}, "b": {"type": "integer"}, "éa": {}}},
    {"properties": {"a": {"minLength": 2}, "z": {"maxLength": 4}}, "minProperties": 1},
    {"maxLength": 6, "not": {"enum": ["", "ab"]}},
    {"propertyNames": {"not": {"enum": ["ab", "abz"]}}},
    {"additionalProperties": {"minLength": 3, "maxLength": 5}, "propertyNames": {"maxLength": 6}},
    {"pattern": "^.*$", "maxLength": 9},
    {"patternProperties": {"^.+$": {"pattern": "^.+$"}}, "minProperties": 1},
]


BEGINNINGS = ('"', '"a', '"ab', '"ab1', '{"', '{"a', '{"ab', '{"ab":1,"', '{"ab":1,"a', '{"b":1,"éa', '{"z')


def vocabulary() -> Vocabulary:
    random = Random(0)
    texts = {bytes([value]) for value in range(256)}
    while len(texts) < 3000:
        text = "".join(random.choices(CHARACTERS, k=random.randint(2, 14))).encode()
        texts.add(text[random.random() < 0.05 :])
    return Vocabulary([*sorted(texts), None], [len(texts)])


VOCABULARY = vocabulary()
EOS = VOCABULARY.size - 1


def check(guide: LiftedGuide, random: Random) -> None:
    """Compare the masks along random texts with walks through the whole trie."""
    checked: set[int] = set()
    begins = [guide.read(guide.start, text.encode()) for text in BEGINNINGS]
    for begin in [guide.start] * 8 + [state for state in begins if state >= 0]:
        state = begin
        for _ in range(12):
            mask = guide.mask(state)
            if state not in checked:
                checked.add(state)
                plain = guide.mask_below(state, 0)
                bits = np.unpackbits((mask ^ plain).view(np.uint8), bitorder="little")
                assert not [VOCABULARY.tokens[token] for token in np.flatnonzero(bits).tolist() if token != EOS]
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            state = guide.advance(state, int(random.choice(allowed)))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_of_patterns(pattern: str) -> None:
    check(RegexGuide(pattern, VOCABULARY), Random(pattern))


@pytest.mark.parametrize("times", ["*", "{2,11}", "{0,40}"])
@pytest.mark.parametrize("characters", SETS)
def test_masks_of_sets_beyond_ascii(characters: str, times: str) -> None:
    """Walks know of loops themselves: so some of these masks are compared with what is read byte by byte."""
    guide = RegexGuide(f'"{characters}{times}"[,:]?', VOCABULARY)
    check(guide, Random(characters + times))
    for text in ('"', '"ab'):
        state = guide.read(guide.start, text.encode())
        allowed = np.flatnonzero(np.unpackbits(guide.mask(state).view(np.uint8), bitorder="little"))
        assert set(allowed.tolist()) == naive_mask(guide, state)


def test_a_set_without_one_character_has_a_slice() -> None:
    """Of the same loop as its span: all lead bytes but one loop."""
    fresh = vocabulary()
    guide = RegexGuide('"[^"\u2028]*"|b"[^"\u2028]*"b', fresh)
    for text in (b'"', b'b"'):
        guide.mask(guide.read(guide.start, text))
    loop = span_of(negate(((ord('"'), ord('"')), (0x2028, 0x2028))))
    assert loop[2].bit_count() == 0xF4 - 0xC2
    assert isinstance(VocabularyTables.of(fresh)._slices.get(loop), LoopSlice)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@pytest.mark.parametrize("order", ["any", "schema"])
def test_masks_of_schemas(number: int, order: str) -> None:
    check(JSONGuide(SCHEMAS[number], VOCABULARY, order=order), Random(number))  # type: ignore[arg-type]


def test_masks_of_names_are_those_read_byte_by_byte() -> None:
    """Walks read on in names without making states, until these end: of few names and many, alone and beside others."""
    texts = [
        b'"',
        b'"a',
        b'"ab',
        b'"aba"',
        b'"aba":',
        b'b"',
        b"ba",
        b'":',
        b'":"',
        b',"',
        b'{"',
        b'{"a',
        b" ",
        b'"b":1',
        b"ab",
    ]
    vocabulary = Vocabulary([*(bytes((byte,)) for byte in range(256)), *texts, None], [256 + len(texts)])
    names = ["a", "ab", "aba", "abb", "b", "ba", "z"]
    for count, closed in ((7, True), (7, False), (40, True), (40, False)):
        names += [f"b{number}" for number in range(count - len(names))]
        properties = {name: {"type": "integer"} for name in names[:count]}
        schema = {"type": "object", "properties": properties, "additionalProperties": not closed}
        guide = JSONGuide(schema, vocabulary)
        for text in (
            "{",
            '{"',
            '{"a',
            '{"ab',
            '{"b',
            '{"aba":1,',
            '{"aba":1, "',
            '{"aba":1, "ab',
            '{"z":1,"b":2,"b',
            '{ "',
        ):
            state = guide.read(guide.start, text.encode())
            assert set(tokens_of(guide.mask(state))) == naive_mask(guide, state)


def test_usual_states_do_not_lead_from_count_to_count() -> None:
    """Of each state of this pattern the next is the usual one: all of them are not to be gone through for one mask."""
    vocabulary = Vocabulary.from_bytes()
    guide = RegexGuide(r"(\w[^A-z\d\]]*){30000}", vocabulary)
    state = guide.start
    for text in (b"a", b"b-", b"c"):
        state = guide.read(state, text)
        assert tokens_of(guide.mask(state)) == [b for b in range(256) if guide.read(state, bytes((b,))) != DEAD]
