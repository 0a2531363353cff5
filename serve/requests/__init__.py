"""Bodies of requests, field by field: shapes that pydantic checks, and what they mean to the engine."""
