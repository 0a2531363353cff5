"""The KV cache in blocks, and attention over it.

reach has attention spans, storage the blocks, step the metadata of packed steps, attention the computation. Each module
imports only earlier ones of this list.
"""
