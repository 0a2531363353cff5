"""Attention over a KV cache in blocks: paged.py and panels.py (CPU), triton_paged.py (GPU), reference.py (tests)."""
