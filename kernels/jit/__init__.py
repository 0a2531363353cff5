"""Compilation of kernels.

compiling.py and wide.py hold the decorators, arrays.py what kernels take as one argument, calling.py quick calls,
aliases.py the types of their signatures.
insides.py looks whether Numba has inside what makes compiling fast: by_address.py, linking.py and passes.py stand on
that, and by_value.py does without.
"""
