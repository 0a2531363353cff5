"""How a schema is read."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import OptionError


@dataclass(frozen=True, slots=True)
class Options:
    """How a schema is read.

    formats: whether the standard formats are enforced (otherwise they are annotations)
    max_cases: how many alternatives a formula may fall into for one type
    """

    formats: bool = True
    max_cases: int = 512

    def __post_init__(self) -> None:
        if self.max_cases < 1:
            raise OptionError(f"max_cases must be at least 1, not {self.max_cases}")
