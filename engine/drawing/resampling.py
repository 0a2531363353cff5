"""Resampling: which particles are continued, each as often as its share says, on average exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..decode.arrays import as_list


def systematic(shares: NDArray[np.float64], count: int, uniforms: Sequence[float]) -> list[int]:
    """The numbers of `count` particles, by a comb of equal steps that begins at the first of the uniforms.

    Source: J. Carpenter, P. Clifford, P. Fearnhead, "Improved particle filter for nonlinear problems" (1999).
    """
    return places_of(shares, (np.arange(count) + uniforms[0]) / count)


def stratified(shares: NDArray[np.float64], count: int, uniforms: Sequence[float]) -> list[int]:
    """The numbers of `count` particles, one for each stratum of equal size, at its own uniform.

    Source: G. Kitagawa, "Monte Carlo filter and smoother for non-Gaussian nonlinear state space models" (1996).
    """
    return places_of(shares, (np.arange(count) + np.asarray(uniforms[:count])) / count)


def places_of(shares: NDArray[np.float64], uniforms: NDArray[np.float64]) -> list[int]:
    """The places that numbers in [0, 1) fall on, each as wide as its share; some share must be above 0."""
    sums = np.cumsum(shares)
    found = sums.searchsorted(uniforms * float(sums[-1]), side="right")
    return as_list(np.minimum(found, np.flatnonzero(shares)[-1]))
