"""Decoders of the Llama family, run layer by layer without the model's own code, in few launches.

structure says which bodies these are and what they are made of, weights lays what is multiplied together side by side,
decoder runs them, host does so by kernels for the CPU, in one call where a step is small (at_once); probe compares with
the body itself; reader reads chunks with one of the two.
"""
