"""Searches that are right about a whole text: exact draws, and weighted ones step by step under the masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from ...checks import number, whole
from ...errors import OptionError
from .sample import MANY, Sample

WIDEST = 1 << 10


@dataclass(frozen=True, kw_only=True)
class Target:
    """The base of `Exact`, `SMC` and `Importance`: the model whose texts they draw.

    It is the model as `Sample` with these parameters draws from it where there is no constraint: temperature, top_k,
    top_p and min_p apply to all tokens, before any is refused. The target is that distribution over whole texts, EOS
    included, given that the text meets the constraint and has at most `max_tokens` tokens.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", Sample(**self.random).top_k)

    @property
    def random(self) -> dict[str, Any]:
        """The options of random choice, which are those of `Sample`, by name."""
        return {each.name: getattr(self, each.name) for each in fields(Target)}

    @property
    def n(self) -> int:
        """Number of texts for each prompt."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Number of texts that the model may read at once for a prompt."""
        raise NotImplementedError

    @property
    def is_filtered(self) -> bool:
        """True if some tokens are left out whatever the constraint says."""
        return Sample(**self.random).is_filtered


MOST_PARTICLES = 1 << 14

Potential = Callable[[str, bool], float | bool]
"""Of a text so far, and whether that is all of it: the natural logarithm of its weight, or whether it has any."""


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


@dataclass(frozen=True)
class Importance(Target):
    """`n` texts drawn under the masks, as `Sample` draws them, each with the weight that makes up for the masks.

    A weight is the product of the probabilities that the model gave to all allowed tokens together, step by step:
    means under these weights are means over the model's texts that meet the constraint, and their mean is the
    probability that the model writes such a text, without bias. Results have `log_weight`, `log_z`, `ess`, `distance`.
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    """

    n: int = 16  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n", whole(self.n, "n", 1, MOST_PARTICLES))

    @property
    def rows(self) -> int:
        """Texts side by side."""
        return self.n


@dataclass(frozen=True)
class SMC(Target):
    """Sequential Monte Carlo: `particles` texts side by side, weighed as those of `Importance`, and resampled.

    Where the effective number of particles falls below the share `ess` of them, the likely ones are continued in the
    place of the others.
    n: how many come out; 0 for all, each with its `log_weight`. Fewer are drawn by the weights, and count equally
    potential: weighs texts besides, `potential(text, complete)`: the natural logarithm of a weight, -inf for a text
        that must not be, or True or False; of texts so far it says where to look, of complete ones what is drawn
    accepts: refuses texts besides, `accepts(text, complete)`, token by token: another token is drawn in the place of
        one after which it is False
    resampling: "systematic" or "stratified"
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    Sources: A. Lew and others, "Sequential Monte Carlo Steering of Large Language Models" (2023); of `accepts`,
    B. Lipkin and others, "Fast Controlled Generation from Language Models with Adaptive Weighted Rejection Sampling"
    (2025), their geometric estimate of the accepted mass.
    """

    particles: int = 16
    n: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    potential: Potential | None = None
    accepts: Potential | None = None
    ess: float = 0.5
    resampling: Literal["systematic", "stratified"] = "systematic"

    def __post_init__(self) -> None:
        super().__post_init__()
        particles = whole(self.particles, "particles", 1, MOST_PARTICLES)
        object.__setattr__(self, "particles", particles)
        object.__setattr__(self, "n", whole(self.n, "n", 0, particles) or particles)
        for name in ("potential", "accepts"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise OptionError(f"{name}={value!r}: a function of a text so far and of whether it is complete")
        meaning = "a share of the particles from 0 (never resample) to 1"
        if not 0 <= number(self.ess, "ess", meaning) <= 1:
            raise OptionError(f"ess={self.ess!r}: {meaning}")
        if self.resampling not in ("systematic", "stratified"):
            raise OptionError(f'resampling={self.resampling!r}: "systematic" or "stratified"')

    @property
    def rows(self) -> int:
        """Texts side by side."""
        return self.particles
