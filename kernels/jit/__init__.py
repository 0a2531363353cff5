"""Compilation of kernels.

compiling.py and wide.py: decorators, and calls without type dispatch. arrays.py: several arrays as one argument.
addresses.py: memory by address. vectors.py: vectors in registers. aliases.py: types of signatures.
insides.py tests whether Numba has the internals that by_address.py and linking.py need for fast compilation.
"""
