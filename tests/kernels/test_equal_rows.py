"""Numbers of rows, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from trellm.kernels.equal_rows import enter_first, hash_row, number_of


@settings(deadline=None)
@given(st.data(), st.sampled_from([np.int32, np.uint32]), st.integers(1, 4))
def test_equal_rows_have_one_number(data: st.DataObject, kind: type[np.integer], width: int) -> None:
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    elements = st.sampled_from([0, 1, 2, least, most])
    rows = data.draw(arrays.arrays(kind, (data.draw(st.integers(1, 40)), width), elements=elements))
    index = np.full(128, -1, np.int32)
    enter_first(rows, index)
    known: dict[bytes, int] = {rows[0].tobytes(): 0}
    for at in range(1, len(rows)):
        assert number_of(rows, at, index) == known.setdefault(rows[at].tobytes(), at)


@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_hashes_tell_apart_where_numbers_stand(kind: type[np.integer]) -> None:
    rows = np.zeros((64, 8), kind)
    for number in range(64):
        rows[number, number // 8] = 1 + number % 8
    assert len({int(hash_row(rows, at)) for at in range(64)}) == 64
