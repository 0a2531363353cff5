"""Interrupts and refused memory at random places: a deterministic slice of the injector."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


def test_what_is_broken_off_leaves_everything_as_it_was(instrument: Callable[..., str]) -> None:
    instrument("injection.py", "--places", "200", "--strict")
