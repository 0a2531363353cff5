"""Prompts: what callers may pass (`given`), and the tokens that a model reads of it (`encoding`)."""
