"""How the texts of a schema's values are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from ....checks import one_of
from ..automata.spelling import Escapes
from .whitespace import Spacing

Order = Literal["schema", "any"]
Spelling = Literal["plain", "any"]
_ORDERS, _ESCAPES, _SPELLINGS = get_args(Order), get_args(Escapes), get_args(Spelling)


@dataclass(frozen=True, slots=True)
class Form:
    """How JSON may be written.

    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    spacing: the white space; escapes: "canonical" as json.dumps(ensure_ascii=False) escapes, or "any"
    spelling: of numbers, "plain" as people write them, see numbers/texts.py, or "any"
    """

    order: Order = "schema"
    spacing: Spacing = field(default_factory=Spacing)
    escapes: Escapes = "canonical"
    spelling: Spelling = "any"

    def __post_init__(self) -> None:
        one_of(self.order, "order", _ORDERS)
        one_of(self.escapes, "escapes", _ESCAPES)
        one_of(self.spelling, "spelling", _SPELLINGS)
