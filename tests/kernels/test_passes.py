"""Numba with fewer passes and a memory for signatures."""

import numba
import numpy as np
import pytest
from numba.core.types.functions import BaseFunction
from trellm.kernels.jit.linking import Compiler, Signatures

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def mixed(values, number):
    """Operators for several types, one after the other, and one that is compiled for its types."""
    total = number + number + 1
    for value in values:
        total += min(value + number, value * 2) if value > 1 else -(value + number)
    return total + len(values) + values[0]


def test_what_is_remembered_is_what_numba_finds() -> None:
    find, signatures = BaseFunction.get_call_type, Signatures()
    signatures.begin()
    try:
        compiled = numba.njit(pipeline_class=Compiler)(mixed)
        for values, number in ((np.arange(4), 2), (np.arange(4) / 3, 2), (np.arange(4), 1.5), (np.arange(4) / 3, 1.5)):
            assert compiled(values, number) == mixed(values, number)
        assert len(compiled.overloads) == 4
    finally:
        signatures.end()
    assert BaseFunction.get_call_type is find, "Numba is left as it was"
