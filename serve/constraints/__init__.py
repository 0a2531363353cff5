"""Constraints of requests, from all supported dialects, and their compilation beside running requests."""
