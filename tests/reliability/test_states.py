"""States and tokens that no guide gave out, asked of every guide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


def test_states_that_were_never_given_out_are_refused(instrument: Callable[..., str]) -> None:
    instrument("states.py", "--every", "9")
