"""Masks by way of loops, of usual states and of spans are those of plain walks."""

from random import Random

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import DEAD, JSONGuide, RegexGuide, tokens_of

from ..naive_masks import naive_mask
from ..support import LiftedGuide, MaskParts, VocabularyTables, negate, span_of

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
    assert isinstance(VocabularyTables.of(fresh)._slices.get(loop), MaskParts)


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


COUNTED = [
    "\n {0,12}(\t{1,5})?[ab]",
    "(\r?\n( {0,9}|\t{1,4}))?x?",
    " {3,9}a",
    " {2,}a{0,7}é{2,}",
    "(ab){2,5}",
    "([ab]{1,4} ){0,5}x",
    "[^ ]{2,9}( +[^ ]{1,7}){0,3}",
    "(a|世){3,11}b?",
    "([^a\u2028]{2,6}a){1,3}",
    "( {0,4}a{0,3}){2,4}",
    r"([^\n\"]{2,9}\n){1,3}!",
    r"(([ -~é]{1,30}|[a-z]*\t+)世){1,3}",
    r"[a-zé ]{2,6}x|[a-z世é ]*\"",
    r"[^a]{0,5}\n|[ -~]{1,12}\t|[^b\n]+\r?",
]
RUNS = (" ", " ", " ", "\t", "\n", "\r", "a", "a", "b", "x", "é", "世", "\u2028", '"')


def runs_vocabulary() -> Vocabulary:
    random = Random(1)
    texts = {bytes([value]) for value in range(256)} | {(" " * n + end).encode() for n in range(14) for end in "ab\t世"}
    while len(texts) < 900:
        text = "".join(random.choice(RUNS) * random.choice((1, 1, 2, 5)) for _ in range(random.randint(1, 4))).encode()
        texts.add(text[: 15 - (random.random() < 0.1)])
    return Vocabulary([*sorted(texts), None], [len(texts)])


RUNS_VOCABULARY = runs_vocabulary()


def check_by_reading(guide: LiftedGuide, begin: int, random: Random) -> None:
    """Compare the masks along a random text with what is read token by token."""
    state = begin
    for _ in range(10):
        allowed = tokens_of(guide.mask(state))
        assert set(allowed) == naive_mask(guide, state)
        texts = [token for token in allowed if token < RUNS_VOCABULARY.size - 1]
        if not texts:
            return
        state = guide.advance(state, random.choice(texts))


@pytest.mark.parametrize("pattern", COUNTED)
def test_masks_of_counted_runs_are_those_read_token_by_token(pattern: str) -> None:
    for seed in range(3):
        guide = RegexGuide(pattern, RUNS_VOCABULARY)
        check_by_reading(guide, guide.start, Random(seed))


@pytest.mark.parametrize("begin", ["[1,", '{"a":"', '{"a":"b', '["'])
def test_masks_of_counted_words_and_indentation(begin: str) -> None:
    word = {"type": "string", "pattern": r"^(?:\S+\s+){0,3}\S+$", "maxLength": 14}
    schema = {"anyOf": [{"items": {"anyOf": [word, {"type": "integer"}]}}, {"properties": {"a": word}}]}
    for seed in range(3):
        guide = JSONGuide({"type": ["object", "array"], **schema}, RUNS_VOCABULARY)
        check_by_reading(guide, guide.read(guide.start, begin.encode()), Random(seed))


HOST = {"type": "string", "format": "hostname"}
NARROW = {"type": "string", "pattern": r"^[a-zA-Z0-9é]{2,5}([.:][a-zA-Z1-9]{1,9})?( [^a]{1,3}b)?$"}
LOOPING = {"type": "string", "pattern": r"^[a-z0-9.é]+([:/][a-zA-Z0-9é]{0,40}[^é]*)?$", "minLength": 3}
INSIDE = [
    {"type": "array", "prefixItems": [HOST], "items": {"type": "array", "items": HOST, "maxItems": 2}},
    {"type": "object", "properties": {"ab": HOST, "z": {"items": HOST}}, "additionalProperties": {"maxLength": 3}},
    {"type": "object", "additionalProperties": NARROW, "maxProperties": 3},
    {"anyOf": [NARROW, {"const": "ab"}, {"type": "array", "items": {"anyOf": [NARROW, HOST, {"type": "number"}]}}]},
    {"type": "object", "propertyNames": NARROW, "additionalProperties": {"$ref": "#"}},
    {"type": "array", "items": {"anyOf": [{"type": "string", "format": "uri"}, LOOPING, {"items": LOOPING}]}},
]


@pytest.mark.parametrize("number", range(len(INSIDE)))
def test_masks_inside_a_rule_are_those_of_plain_walks(number: int) -> None:
    check(JSONGuide(INSIDE[number], VOCABULARY), Random(number))


def test_what_stays_inside_a_rule_is_walked_once_for_all_places() -> None:
    lists, maps = {"type": "array", "items": HOST}, {"type": "object", "additionalProperties": HOST}
    random = Random(0)
    words = {"".join(random.choices("abcdefgh", k=random.randint(2, 6))).encode() for _ in range(4000)}
    several = Vocabulary([*(bytes([value]) for value in range(256)), *sorted(words), None], [256 + len(words)])
    guide = JSONGuide({"type": "array", "items": {"anyOf": [HOST, lists, maps]}}, several)
    meter = guide.automaton.meter

    def work(begin: str) -> int:
        state = guide.read(guide.start, begin.encode())
        guide.mask(state)
        return meter.spent

    first = work('["ab')
    assert max(work(begin) for begin in ('["zz", ["ab', '["zz", {"a": "ab', '[{"a": "b", "b": "ab')) < first / 5
