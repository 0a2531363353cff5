"""Weights that are fetched once and kept: which there are by name, where they lie, how they are fetched."""
