"""Draws of exactly the model's distribution over the texts of a constraint."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import whole
from .sample import MANY
from .target import Target

WIDEST = 1 << 10


@dataclass(frozen=True)
class Exact(Target):
    """`n` independent texts, each as likely as the model says, given that it meets the constraint within `max_tokens`.

    A text is attempted, and given up where the model by itself would leave the constraint; what is learnt of the
    prompt's texts makes later attempts better, of later calls too unless they have a seed, which repeats. Takes long
    where the model hardly ever stays within the constraint: use `SMC` then.
    parallel: most attempts side by side; attempts: most of them for each text, beyond which SamplingError is raised
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    Source: P. Parys and others, "Constrained Adaptive Rejection Sampling" (2025), with a mask's mass in place of the
    token that the mask refuses.
    """

    n: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]
    parallel: int = 8
    attempts: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n", whole(self.n, "n", 1, MANY))
        object.__setattr__(self, "parallel", whole(self.parallel, "parallel", 1, WIDEST))
        object.__setattr__(self, "attempts", whole(self.attempts, "attempts"))

    @property
    def rows(self) -> int:
        """The attempts, and the prompt that they begin with."""
        return self.parallel + 1
