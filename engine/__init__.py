"""The engine: models, KV cache, scheduling, decoding, searches and results."""
