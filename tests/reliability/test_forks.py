"""Forks while threads use guides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


def test_children_of_a_busy_process_finish(instrument: Callable[..., str]) -> None:
    instrument("forks.py", "--children", "10", "--seconds", "300")
