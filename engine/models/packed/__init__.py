"""Packed steps: the tokens of all chunks are concatenated, without padding.

description defines decoders, architectures lists the described ones of transformers, and source finds their weights;
host and device compute on a CPU and on a GPU; decoder combines these; runner reads chunks with a described decoder, or
with the body's own modules and attention over blocks.
"""
