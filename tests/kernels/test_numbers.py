"""Which states of a number's digits lead to its end, against looking once for each step of a way."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from trellm.guides import DEAD
from trellm.kernels.numbers import find_alive


@settings(deadline=None)
@given(st.data(), st.integers(1, 12))
def test_states_that_lead_to_an_end(data: st.DataObject, count: int) -> None:
    edges = data.draw(arrays.arrays(np.int32, (count, 3), elements=st.integers(DEAD, count - 1)))
    ends = data.draw(arrays.arrays(np.uint8, count, elements=st.integers(0, 1)))
    expected = ends.astype(bool)
    for _ in range(count):
        expected |= np.append(expected, False)[edges].any(axis=1)
    find_alive(edges, ends)
    np.testing.assert_array_equal(ends, expected)
