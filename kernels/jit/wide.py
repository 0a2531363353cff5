"""The decorators of compiling.py for kernels to which the width of an integer does not matter."""

from functools import partial

from .compiling import inner_njit as _inner_njit
from .compiling import njit as _njit
from .compiling import shared_njit as _shared_njit

njit, inner_njit, shared_njit = (partial(decorator, wide=True) for decorator in (_njit, _inner_njit, _shared_njit))
