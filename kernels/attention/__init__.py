"""Attention over keys and values that lie in blocks: paged.py on CPUs, reference.py by definition."""
