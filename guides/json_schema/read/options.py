"""Options of reading a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ....checks import brief
from ....errors import OptionError


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Options of reading a schema.

    formats: whether the standard formats are enforced (otherwise they are annotations)
    max_cases: how many alternatives a formula may fall into for one type
    """

    formats: bool = True
    max_cases: int = 512

    def __post_init__(self) -> None:
        cases, formats = cast(object, self.max_cases), cast(object, self.formats)
        if not isinstance(cases, int) or isinstance(cases, bool) or cases < 1:
            raise OptionError(f"max_cases must be a whole number, at least 1, not {brief(cases)}")
        if not isinstance(formats, bool):
            raise OptionError(f"formats must be True or False, not {brief(formats)}")
