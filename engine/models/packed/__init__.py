"""Packed steps: the tokens of all chunks behind one another, without padding.

description says what a decoder computes, architectures which of transformers' are described, source finds the weights
of such a one; host and device compute with them, on a CPU and on a GPU; decoder puts these together, and runner reads
chunks by a described decoder, or by the body's own modules with attention over blocks.
"""
