"""Interrupts and refused memory at random places: a deterministic slice of the injector."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("first", [0, 100, 200])
def test_what_is_broken_off_leaves_everything_as_it_was(first: int, instrument: Callable[..., str]) -> None:
    instrument("injection.py", "--places", "100", "--first", str(first), "--strict")
