"""Bodies of transformers on a CPU with quick parts in place of slow ones: the same weights, otherwise the same code.

parts has products and norms, steps the functions by which states go on with a single token, all of which compute in
the kernels of kernels/decoder; twin makes a body of another's modules and these.
"""
