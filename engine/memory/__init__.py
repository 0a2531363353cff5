"""The memory of what models have read: blocks of keys and values, and whose they are."""
