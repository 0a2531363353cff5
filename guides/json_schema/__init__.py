"""JSON Schema, read into a normal form on demand, and lowered to a graph as it is reached.

Rooms, each of which imports only those before it: `read` (documents), `algebra` (formulas and sets of values),
`automata` (sets of strings), `witness` (instances), `compiled` (a schema with all of these), `lower` (the graph).
`outline` describes a compiled schema. A JSON type has the same name in each of them.
"""

from .compiled import CompiledSchema
from .lower.check import check
from .lower.form import Form, Order, Spacing, Spelling
from .lower.formulas import SchemaLowering
from .read.documents import SchemaOptions

__all__ = ["CompiledSchema", "Form", "Order", "SchemaLowering", "SchemaOptions", "Spacing", "Spelling", "check"]
