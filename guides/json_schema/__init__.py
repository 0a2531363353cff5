"""JSON Schema, read into a normal form that is worked out on demand, and lowered to a graph as it is reached."""

from .compiled import CompiledSchema, Options
from .lowering import Form, Order, SchemaLowering
from .whitespace import Spacing

__all__ = ["CompiledSchema", "Form", "Options", "Order", "SchemaLowering", "Spacing"]
