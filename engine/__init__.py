"""The decode loop: rows, KV cache, batching, search, models, results."""
