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


@pytest.mark.parametrize("arguments", [["--drafts", "--blocks", "40"], ["--ahead"]])
def test_requests_in_little_memory(arguments: list[str], instrument: Callable[..., str]) -> None:
    # Where the script asked for more than fits, nobody read any more, and nearly all of its requests were cancelled.
    said = instrument("requests.py", "--cases", "60", *arguments)
    assert int(said.split(" requests compared")[0].split()[-1]) >= 40
