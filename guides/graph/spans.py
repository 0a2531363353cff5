"""Spans: the sets of characters that graphs promise can be read, as words of bits."""

from __future__ import annotations

from ...kernels.chart.rows import FIRST_LEAD
from ..kept import kept
from ..syntax import Ranges

Span = tuple[int, int, int]


@kept(256, 8 << 20)
def span_of(ranges: Ranges) -> Span:
    """A set of characters as Graph.spans has it: less than the set, where it has only some that begin with a byte."""
    bits = 0
    for low, high in ranges:
        if low < 0x80:
            bits |= (1 << (min(high, 0x7F) + 1)) - (1 << low)
    leads = 0
    for lead, (first, last) in _BEGINNING_WITH.items():
        if any(low <= first and last <= high for low, high in ranges):
            leads |= 1 << (lead - FIRST_LEAD)
    return bits & (2**64 - 1), bits >> 64, leads


def _beginning_with(lead: int) -> tuple[int, int]:
    """The first and the last character whose UTF-8 begins with a byte; there are none in D800 to DFFF."""
    if lead < 0xE0:
        return (lead & 0x1F) << 6, (lead & 0x1F) << 6 | 0x3F
    if lead < 0xF0:
        first = (lead & 0x0F) << 12
        return max(first, 0x800), 0xD7FF if lead == 0xED else first | 0xFFF
    first = (lead & 0x07) << 18
    return max(first, 0x10000), min(first | 0x3FFFF, 0x10FFFF)


_BEGINNING_WITH = {lead: _beginning_with(lead) for lead in range(0xC2, 0xF5)}
