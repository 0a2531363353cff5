"""Spans of characters, beside what the encoding of each character says."""

import pytest

from ..support import negate, span_of


@pytest.fixture(scope="module")
def first_byte() -> list[int]:
    """Of each character, -1 for surrogates, which are none."""
    return [-1 if 0xD800 <= point < 0xE000 else chr(point).encode()[0] for point in range(0x110000)]


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
def test_a_lead_byte_is_there_if_all_its_characters_are(
    ranges: tuple[tuple[int, int], ...], first_byte: list[int]
) -> None:
    inside = bytearray(0x110000)
    for low, high in ranges:
        inside[low : high + 1] = bytes([1]) * (high + 1 - low)
    lacking = {lead for lead, is_inside in zip(first_byte, inside, strict=True) if not is_inside}
    leads = {lead for lead in set(first_byte) if lead >= 0x80}
    expected = sum(1 << (lead - 0xC0) for lead in leads - lacking)
    low, high, found = span_of(ranges)
    assert found == expected
    assert low | high << 64 == sum(1 << byte for byte in range(0x80) if inside[byte])
