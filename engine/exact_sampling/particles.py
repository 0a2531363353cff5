"""Sequential Monte Carlo, and importance sampling, which is the same without resampling.

Particles with equal tokens share one KV sequence until they draw different tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import shown
from ...errors import OptionError, SamplingError
from ...guides.protocol import Mask
from ...kernels.logits.mask import allowed_ids
from ..decode.randomness import row_key, uniform
from ..decode.sequence import KVSequence, Request
from ..memory.pool import Pool
from ..scores import SampleStatistics, distance, effective, log_mean, places_of, shares, stratified, systematic
from ..search import SMC, Importance
from .distribution import Distribution, Draw, LogitsQuery, first_accepted
from .path import PrefixSequences, SampledPath, Walk

GREATEST = 1e300
"""Greatest magnitude of a potential. Sums and differences of log-weights stay finite."""


class Potentials:
    """The functions of a search, called once for each drawn text."""

    def __init__(self, search: SMC) -> None:
        self.accepts = search.accepts
        self._potential = search.potential
        self._last: tuple[SampledPath, float] | None = None

    def of(self, path: SampledPath) -> float:
        """Return the log-weight of a text; 0 without a potential."""
        if self._potential is None:
            return 0.0
        if self._last is None or self._last[0] is not path:
            self._last = path, _log_weight(self._potential(path.decoded_text, path.finish is not None))
        return self._last[1]

    def accepted(self, path: SampledPath) -> bool:
        """Test whether `accepts` accepts a text."""
        if path.is_dead:
            return False
        assert self.accepts is not None
        found: Any = self.accepts(path.decoded_text, path.finish is not None)
        if not _is_boolean(found):
            raise OptionError(f"accepts must return True or False, not {shown(found)}")
        return bool(found)


def _log_weight(found: Any) -> float:
    if _is_boolean(found):
        return 0.0 if found else -math.inf
    value: Any = found
    if isinstance(found, np.floating):  # float16 may overflow in comparisons
        value = float(value)
    if not isinstance(found, Real) or not (value == -math.inf or abs(value) <= GREATEST):
        raise OptionError(
            f"potential must return a log-weight, -inf or a number from -{GREATEST:g} to {GREATEST:g}, or True or "
            f"False, not {shown(found)}"
        )
    return float(value)


def _is_boolean(found: Any) -> bool:
    """Test for a bool of Python or NumPy."""
    return isinstance(found, (bool, np.bool_))


OUTSIDE = 1 / 16
"""Share of draws of tokens after which the rest may not fit the budget, if it surely fits after others."""
_RESAMPLING = 1 << 40


@dataclass(slots=True, eq=False)
class Particle:
    """A weighted text. potential: the potential of its present text"""

    key: int
    path: SampledPath
    log_weight: float = 0.0
    potential: float = 0.0

    @property
    def is_live(self) -> bool:
        """True if it is unfinished and has a weight."""
        return self.path.finish is None and self.log_weight > -math.inf


class Particles:
    """The particles of one prompt. `Population` describes the methods that callers use."""

    def __init__(self, request: Request, search: SMC | Importance, walk: Walk, pool: Pool, first: KVSequence) -> None:
        self.request = request
        self.error: Exception | None = None
        self._search = search
        self._walk = walk
        self._potentials = Potentials(search) if isinstance(search, SMC) else None
        self._readers = PrefixSequences(pool, request.start.prompt, first)
        path = walk.first()
        self._particles = [Particle(row_key(request.key, number), path) for number in range(search.rows)]
        self._is_finished = False
        self.is_fresh = True  # no answer received yet
        self._groups: list[list[Particle]] = []  # particles with equal tokens
        self._masks: list[Mask | None] = []  # of each group
        self._plain: list[tuple[int, float, Particle]] = []  # row, log mass of its mask, particle
        self._step = 0
        self._causes = Counter[str]()

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The KV sequences that the model reads."""
        return self._readers.sequences

    @property
    def done(self) -> bool:
        """True if all texts are finished or the prompt has failed."""
        return self._is_finished or self.error is not None

    @property
    def log_z(self) -> float:
        """Logarithm of the unbiased estimate of the target's mass."""
        return log_mean(self._log_weights)

    @property
    def _log_weights(self) -> list[float]:
        return [particle.log_weight for particle in self._particles]

    def restart(self, first: KVSequence) -> None:
        """Mark all tokens as unread."""
        self._readers.restart(first)

    def ask(self, rows: Mapping[int, int]) -> LogitsQuery:
        """Return the query for the particles' distinct texts."""
        groups: dict[tuple[int, ...], list[Particle]] = {}
        for particle in self._particles:
            if particle.is_live:
                groups.setdefault(particle.path.tokens, []).append(particle)
        self._groups = list(groups.values())
        paths = [group[0].path for group in self._groups]
        self._masks = [self._walk.mask(path) for path in paths]
        return LogitsQuery([rows[id(self._readers.of(tokens))] for tokens in groups], paths, self._masks)

    def answer(self, found: Distribution, first: int) -> list[Draw]:
        """Weigh particles by the masses of their masks. Return the draws of those that continue."""
        walk = self._walk
        self.is_fresh = False
        self._causes.clear()
        self._plain = []
        for row, (group, mask) in enumerate(zip(self._groups, self._masks, strict=True), first):
            path = group[0].path
            if not found.sound[row]:
                raise walk.unusable(path)
            closing = walk.closing(path)
            if found.masses[row] == -math.inf:
                is_over = self.request.left(path) == 0
                cause = "max_tokens" if is_over else "the model, which gives all allowed tokens probability 0"
                self._kill(group, cause)
            elif closing is None and (self._potentials is None or self._potentials.accepts is None):
                self._plain += [(row, found.masses[row], particle) for particle in group]
            else:
                self._draw_apart(group, found, row, mask, closing)
        return [Draw(row, self._uniform(particle, 0)) for row, _, particle in self._plain]

    def take(self, tokens: Sequence[int]) -> None:
        """Append the drawn tokens, and resample."""
        after: dict[tuple[int, int], SampledPath] = {}
        for (row, mass, particle), token in zip(self._plain, tokens, strict=True):
            if (row, token) not in after:
                after[row, token] = self._walk.after(particle.path, token)
            self._take(particle, after[row, token], mass)
        self._step += 1
        if self.log_z == -math.inf:
            self.error = self._died()
            return
        if self._potentials is not None:
            self._resample()
        live = {particle.path.tokens: None for particle in self._particles if particle.is_live}
        self._is_finished = not live
        if live:
            self._readers.keep(list(live), root=False)

    def results(self) -> list[tuple[SampledPath, SampleStatistics]]:
        """Return the texts with non-zero weight, or `n` texts drawn by weight."""
        weights = self._log_weights
        log_z, ess = self.log_z, effective(weights)
        apart = distance(weights) if self._potentials is None else None
        read = self._readers.tokens / self._search.n
        if self._search.n < len(self._particles):
            chosen = self._chosen(self._search.n)
            return [(self._particles[i].path, SampleStatistics(0.0, log_z, ess, read)) for i in chosen]
        return [
            (particle.path, SampleStatistics(particle.log_weight, log_z, ess, read, distance=apart))
            for particle in self._particles
            if particle.log_weight > -math.inf
        ]

    def _draw_apart(
        self, group: list[Particle], found: Distribution, row: int, mask: Mask | None, closing: Mask | None
    ) -> None:
        """Draw tokens one by one if `accepts` may reject them or the budget is tight.

        If the budget is tight, tokens after which the rest surely fits are preferred. The weights correct for this.
        """
        size, path = found.logits.shape[1], group[0].path
        ids = np.arange(size, dtype=np.int32) if mask is None else allowed_ids(mask, size)
        chances, scale = found.shares(row, ids)
        fits = np.ones(len(ids), np.bool_) if closing is None else _allows(closing, ids)
        shares_of = float(chances[fits].sum()), float(chances[~fits].sum())
        after: dict[int, SampledPath] = {}

        def behind(place: int) -> SampledPath:
            if place not in after:
                after[place] = self._walk.after(path, int(ids[place]))
            return after[place]

        def accepts(place: int) -> bool:
            return self._potentials is None or self._potentials.accepted(behind(place))

        for particle in group:
            is_outside = self._uniform(particle, 1) < OUTSIDE if min(shares_of) > 0 else shares_of[0] == 0
            chance = 1.0 if min(shares_of) == 0 else OUTSIDE if is_outside else 1 - OUTSIDE
            part = np.where(fits == is_outside, 0.0, chances)
            place, share = 0, 1.0
            if self._potentials is None or self._potentials.accepts is None:
                (place,) = places_of(part, np.array([self._uniform(particle, 0)]))
            else:
                place, share = first_accepted(part, accepts, self._uniforms(particle))
            if place < 0:
                self._kill([particle], "accepts, which refuses all allowed texts")
            else:
                self._take(particle, behind(place), scale + math.log(float(part.sum()) * share / chance))

    def _take(self, particle: Particle, path: SampledPath, log_weight: float) -> None:
        """Append a token to a particle and update its weight."""
        particle.path = path
        particle.log_weight += log_weight
        if path.is_dead:
            self._kill([particle], "max_tokens")
        elif self._potentials is not None:
            potential = self._potentials.of(path)
            if potential == -math.inf:
                self._kill([particle], "the potential")
            else:
                particle.log_weight += potential - particle.potential
                particle.potential = potential

    def _kill(self, group: Sequence[Particle], cause: str) -> None:
        for particle in group:
            particle.log_weight = -math.inf
        self._causes[cause] += len(group)

    def _resample(self) -> None:
        """Resample if the effective number of particles is too small."""
        assert isinstance(self._search, SMC)
        weights = self._log_weights
        if effective(weights) >= self._search.ess * len(weights) or not any(one.is_live for one in self._particles):
            return
        parents = [self._particles[i] for i in self._chosen(len(weights))]
        mean = log_mean(weights)
        self._particles = [
            Particle(particle.key, parent.path, mean, parent.potential)
            for particle, parent in zip(self._particles, parents, strict=True)
        ]

    def _chosen(self, count: int) -> list[int]:
        """Choose `count` particles by weight."""
        assert isinstance(self._search, SMC)
        key = row_key(self.request.key, _RESAMPLING + self._step)
        comb = systematic if self._search.resampling == "systematic" else stratified
        return comb(shares(self._log_weights), count, [uniform(key, number) for number in range(count)])

    def _uniform(self, particle: Particle, attempt: int) -> float:
        return uniform(particle.key, self._step, attempt)

    def _uniforms(self, particle: Particle) -> Iterator[float]:
        """Yield further random numbers of a step, all different from those of attempts 0 and 1."""
        attempt = 2
        while True:
            yield self._uniform(particle, attempt)
            attempt += 1

    def _died(self) -> SamplingError:
        """Return the error for particles that all have weight 0."""
        causes = ", ".join(cause for cause, _ in self._causes.most_common())
        name = type(self._search).__name__
        return SamplingError(
            f"search={name}({self._search.rows}): at step {self._step - 1} of prompt {self.request.number} all "
            f"particles have weight 0, because of {causes}; use more particles, allow more tokens, or use a potential "
            "that ranks texts earlier",
            -math.inf,
        )


def _allows(mask: Mask, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Test which tokens a mask allows, bool [len(ids)]."""
    return (mask[ids >> 5] >> (ids & 31).astype(np.uint32)) & 1 == 1
