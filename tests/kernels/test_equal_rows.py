"""Numbers of rows, against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from trellm.kernels.jit.wide import njit
from trellm.kernels.subsets import enter_first, hash_row, number_of


@njit(cache=False)
def number_all(rows: Any, index: Any, found: Any) -> None:
    enter_first(rows, index)
    for at in range(1, rows.shape[0]):
        found[at] = number_of(rows, at, index)


@njit(cache=False)
def hash_all(rows: Any, found: Any) -> None:
    for at in range(rows.shape[0]):
        found[at] = hash_row(rows, at)


@settings(deadline=None)
@given(st.data(), st.sampled_from([np.int32, np.uint32]), st.integers(1, 4))
def test_equal_rows_have_one_number(data: st.DataObject, kind: type[np.integer], width: int) -> None:
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    elements = st.sampled_from([0, 1, 2, least, most])
    rows = data.draw(arrays.arrays(kind, (data.draw(st.integers(1, 40)), width), elements=elements))
    found = np.zeros(len(rows), np.int64)
    number_all(rows, np.full(128, -1, np.int32), found)
    known: dict[bytes, int] = {}
    assert found.tolist() == [known.setdefault(row.tobytes(), at) for at, row in enumerate(rows)]


@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_hashes_tell_apart_where_numbers_stand(kind: type[np.integer]) -> None:
    rows, found = np.zeros((64, 8), kind), np.zeros(64, np.int64)
    for number in range(64):
        rows[number, number // 8] = 1 + number % 8
    hash_all(rows, found)
    assert len(set(found.tolist())) == 64 and found.min() >= 0 and found.max() < 1 << 32
