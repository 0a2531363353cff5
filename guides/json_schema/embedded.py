"""JSON values as a part of other text."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SchemaError
from ..graph.graph import Graph
from .compiled import CompiledSchema
from .lower.check import check
from .lower.form import Form
from .lower.formulas import SchemaLowering
from .read.documents import SchemaOptions

REMEMBERS = (
    "it remembers what has been written, items that must differ (uniqueItems) or names of members that are "
    "counted, which is no part of a grammar"
)
# Those of generate.json without options
_FORM, _OPTIONS = Form("schema", spelling="plain"), SchemaOptions(max_cases=4096)


@dataclass(frozen=True, slots=True)
class EmbeddedSchema:
    """The values of a schema, written as `generate.json` without options has them.

    text: the schema, as JSON text; fewest: the bytes of a short value
    """

    text: str
    fewest: int

    @classmethod
    def of(cls, text: str) -> EmbeddedSchema:
        """The values of a schema.

        Raises SchemaError for what is no schema, has no instance or cannot be enforced exactly, LimitError.
        """
        schema = _compiled(text)
        schema.check_has_instance()
        if check(schema, _FORM).any:
            raise SchemaError(f"this schema cannot be a part of other text: {REMEMBERS}", "#")
        return cls(text, SchemaLowering(schema, _FORM).shortest(schema.root))

    def lower_into(self, graph: Graph) -> int:
        """Add the values to a graph; the start node of their rule."""
        return SchemaLowering(_compiled(self.text), _FORM, graph=graph).root()


def _compiled(text: str) -> CompiledSchema:
    return CompiledSchema(text, options=_OPTIONS)
