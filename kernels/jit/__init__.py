"""Compilation of kernels.

compiling.py and wide.py hold the decorators and quick calls, arrays.py what kernels take as one argument, addresses.py
memory by its address, vectors.py vectors in registers, aliases.py the types of their signatures.
insides.py looks whether Numba has inside what makes compiling fast, on which by_address.py and linking.py stand.
"""
