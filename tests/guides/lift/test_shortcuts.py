"""Masks by way of loops, of usual states and of spans are those of plain walks."""

from random import Random

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import JSONGuide, RegexGuide
from trellm.guides.lift.lifted_guide import LiftedGuide

CHARACTERS = ("a", "b", "z", "é", '"', '"', "\\", "n", ",", ":", " ", "{", "}", "1")
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
SCHEMAS = [
    {"properties": {"ab": {}, "aba": {"maxLength": 3}, "b": {"type": "integer"}, "éa": {}}},
    {"properties": {"a": {"minLength": 2}, "z": {"maxLength": 4}}, "minProperties": 1},
    {"maxLength": 6, "not": {"enum": ["", "ab"]}},
    {"propertyNames": {"not": {"enum": ["ab", "abz"]}}},
    {"additionalProperties": {"minLength": 3, "maxLength": 5}, "propertyNames": {"maxLength": 6}},
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


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@pytest.mark.parametrize("order", ["any", "schema"])
def test_masks_of_schemas(number: int, order: str) -> None:
    check(JSONGuide(SCHEMAS[number], VOCABULARY, order=order), Random(number))  # type: ignore[arg-type]
