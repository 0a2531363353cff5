"""Memory over a long life: short runs of the soaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("soak", "scale"),
    [
        ("schemas", 0.02),
        ("numbers", 0.02),
        ("strings", 0.01),
        ("contexts", 0.02),
        ("descriptions", 0.3),
        ("counting back", 0.1),
    ],
)
def test_memory_has_an_end(soak: str, scale: float, instrument: Callable[..., str]) -> None:
    instrument("soaks.py", "--only", soak, "--scale", str(scale))
