"""What is known of texts that were drawn for one prompt, beside the texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a text was drawn; see `Generation`, whose fields these are."""

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
    """How many texts of equal weight tell as much: 1 / sum of squared shares. Source: A. Kong (1992)."""
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
