"""Spans of characters, beside what the encoding of each character says."""

import pytest
from trellm.guides.automata.charsets import negate
from trellm.guides.graph.spans import span_of

EVERY = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
FIRST_BYTE = [character.encode()[0] for character in EVERY]
LEADS = {lead for lead in FIRST_BYTE if lead >= 0x80}


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        ((0x61, 0x7A),),
        ((0, 0x10FFFF),),
        ((0x80, 0xBF), (0xE9, 0xE9), (0x800, 0xFFF)),
        ((0x20, 0x2027), (0x2029, 0xD7FF), (0xE000, 0x10FFFF)),
        ((0x3F, 0x40), (0xC0, 0xFFFE), (0x10000, 0x3FFFF)),
        negate(((0x22, 0x22), (0x10FFFF, 0x10FFFF))),
    ],
)
def test_a_lead_byte_is_there_if_all_its_characters_are(ranges: tuple[tuple[int, int], ...]) -> None:
    inside = [any(low <= ord(character) <= high for low, high in ranges) for character in EVERY]
    lacking = {lead for lead, is_inside in zip(FIRST_BYTE, inside, strict=True) if not is_inside}
    expected = sum(1 << (lead - 0xC0) for lead in LEADS - lacking)
    low, high, leads = span_of(ranges)
    assert leads == expected
    assert low | high << 64 == sum(1 << byte for byte in range(0x80) if inside[byte])
