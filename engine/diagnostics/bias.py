"""The distance of sampling under masks from the model's own distribution of a constraint's texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..importance import distance, effective, log_mean, shares
from .step import Step

FAR = 0.1
"""A distance that is worth another search."""
OFTEN_ENOUGH = 1e-3
"""`Exact` comes to a text in time where the model stays within the constraint so often."""
PARTICLES = 64


@dataclass(frozen=True)
class Bias:
    """An estimate, by several texts of one prompt sampled under masks, of the distribution that they are drawn from.

    texts: how many
    distance: estimated total variation distance between masked sampling and the model's own distribution of texts,
        given that they meet the constraint: by so much the probability of some set of texts is off, and that of no set
        by more; 0 to 1. error: its standard error. Too low where a few texts have most of the weight (see ess), since
        likelier ones have then perhaps not been drawn at all; never above (texts - 1) / texts
    log_z: natural logarithm of an estimate, without bias, of the probability that the model stays in the constraint
    ess: how many independent draws of the model's own distribution the texts are worth
    """

    texts: int
    distance: float
    error: float
    log_z: float
    ess: float

    @classmethod
    def of(cls, log_weights: Sequence[float]) -> Bias:
        """By the logarithms of the weights of texts, each the product of its masks' masses.

        The weight of a text x is P(x) / Q(x), with Q masked sampling; its mean under Q is Z, and the distance between
        P / Z and Q is the mean of max(0, 1 - weight / Z). The error is that of the delta method, Z being estimated.
        """
        log_z, ess, count = log_mean(log_weights), effective(log_weights), len(log_weights)
        if log_z == -math.inf:
            return cls(count, math.nan, math.nan, log_z, ess)
        ratios, far = shares(log_weights) * count, distance(log_weights)
        missing = np.maximum(0.0, 1 - ratios)
        influence = missing - far + (ratios - 1) * np.where(ratios < 1, ratios, 0.0).mean()
        error = float(np.sqrt(np.square(influence).sum() / max(1, count - 1) / count))
        return cls(count, far, error, log_z, ess)

    @property
    def is_far(self) -> bool:
        """True if the distance matters, and is not chance."""
        return self.distance >= max(FAR, 2 * self.error)

    @property
    def search(self) -> str:
        """The search to take instead."""
        if self.log_z >= math.log(OFTEN_ENOUGH):
            return f"Exact({self.texts})"
        return f"SMC({PARTICLES}, n={self.texts})" if self.texts < PARTICLES else f"SMC({self.texts})"

    def __str__(self) -> str:
        return (
            f"{self.texts:,} texts: distance {self.distance:.2f} ± {self.error:.2f} from the model's own distribution "
            f"of the constraint's texts, log_z {self.log_z:z.2f}, ess {self.ess:.1f}"
        )

    @property
    def advice(self) -> str:
        """The hint's words."""
        few = self.ess < self.texts / 10
        return (
            f"masked sampling draws other texts than the model would (total variation distance {self.distance:.2f} ± "
            f"{self.error:.2f}{', or more, since few of them have most of the weight' if few else ''}, by "
            f"{self.texts:,} texts): where the shares of texts matter, use search={self.search}"
        )


def late(steps: Sequence[Step], share: float = 0.99) -> tuple[float, tuple[int, ...]] | None:
    """The logarithm of the mass that masks left where texts have parted, and the steps that left less than half.

    A constraint takes the same from all texts up to the first real choice, by which nothing is biased: as long as what
    a text has come to has this share of masked sampling. None where weights are not known.
    """
    together, found = 0.0, 0.0
    places: list[int] = []
    for step in steps:
        if step.log_weight is None:
            return None
        if together < math.log(share):
            found += step.log_weight
            if step.log_weight < math.log(0.5):
                places.append(step.position)
        together += step.logprob
    return found, tuple(places)
