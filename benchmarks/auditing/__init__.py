"""The audit of masks: the engines, what is certain of a schema, spellings of values, and witnesses."""
