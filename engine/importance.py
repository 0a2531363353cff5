"""Weights of texts that were drawn for one prompt: their mean, shares and effective number, and resampling by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .scores import as_list


@dataclass(frozen=True, slots=True)
class Drawn:
    """The draw of a text; see `Generation`, whose fields these are."""

    log_weight: float
    log_z: float
    ess: float
    tokens_read: float
    acceptance: float | None = None
    distance: float | None = None


def log_mean(log_weights: Sequence[float]) -> float:
    """The logarithm of the mean of weights."""
    most = max(log_weights)
    if most == -math.inf:
        return most
    return most + math.log(sum(math.exp(one - most) for one in log_weights) / len(log_weights))


def shares(log_weights: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Weights in proportion, float64 [n], their sum 1; some weight must be above 0."""
    found = np.exp(np.asarray(log_weights, np.float64) - max(log_weights))
    return found / found.sum()


def effective(log_weights: Sequence[float]) -> float:
    """Effective sample size of weighted texts: 1 / sum of squared shares. Source: A. Kong (1992)."""
    if max(log_weights) == -math.inf:
        return 0.0
    return float(1 / np.square(shares(log_weights)).sum())


def distance(log_weights: Sequence[float]) -> float:
    """An estimate of the total variation distance between masked sampling and the model's own distribution.

    log_weights: of texts drawn under the masks, as those of `Importance`. Half the mean of |weight / mean - 1|: 0 for
    one text, and never more than (n - 1) / n for n of them.
    """
    if max(log_weights) == -math.inf:
        return math.nan
    found = shares(log_weights)
    return float(np.abs(found - 1 / len(found)).sum() / 2)


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
