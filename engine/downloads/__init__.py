"""Weights that are downloaded once: the registry of names, the cache, and the downloads."""
