"""Decode loops: rows of a batch, KV caches, constraints, token choice and finish conditions."""
