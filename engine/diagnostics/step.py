"""Records of single tokens, and estimates of the bias that masks cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...guides.explain import expected
from ...guides.protocol import Guide
from ...tokenizers_adapter import Vocabulary
from ..scores import Trace, distance, effective, log_mean, shares

COLUMNS = (
    *("position", "token", "token_id", "probability", "raw_probability", "rank"),
    *("leading_token", "leading_token_id", "leading_probability", "leading_allowed"),
    *("allowed", "feasible_mass", "forced", "state", "expected"),
)
END = "EOS"


class Words:
    """Expected input of a guide's states in words, computed on demand and cached."""

    def __init__(self, guide: Guide | None) -> None:
        self.guide = guide
        self._expected: dict[int, str] = {}

    def __call__(self, state: int) -> str:
        if self.guide is None:
            return self._expected.get(state, "anything")
        if state not in self._expected:
            self._expected[state] = expected(self.guide, state)
        return self._expected[state]

    def __getstate__(self) -> Mapping[str, Any]:
        """Return the cached descriptions. A guide holds locks and is not pickled."""
        return {"guide": None, "_expected": self._expected}


@dataclass(frozen=True)
class Step:
    """One choice: the token, the model's preferred token, and the effect of the constraint.

    position: position of the token, from 0; with token healing the first tokens may lie inside the healed prompt tail
    token, leading_token: their texts, None for tokens without text such as EOS; bytes that are not UTF-8 as \\xNN
        leading_... is about the most probable token without the constraint; leading_allowed: whether it was allowed
    probability, raw_probability: of the token among the allowed ones, and among all, at temperature 1;
        logprob and so on are their natural logarithms
    rank: of the token without the constraint, from 1; equal tokens share a rank
    allowed: number of allowed tokens; forced: True for one
    feasible_mass: raw probability of all allowed tokens, 1 without a constraint
    ends, leading_ends: True for EOS
    left: tokens left of `max_tokens`; state: state of the guide before the token
    log_weight: log_feasible_mass at the temperature of `Sample`; None with filters, penalties and biases, and with
        other searches, where no weight corrects for the masks
    """

    position: int
    token: str | None
    token_id: int
    logprob: float
    raw_logprob: float
    rank: int
    leading_token: str | None
    leading_token_id: int
    leading_logprob: float
    leading_allowed: bool
    allowed: int
    log_feasible_mass: float
    ends: bool
    leading_ends: bool
    left: int
    state: int
    log_weight: float | None
    _words: Words = field(repr=False, compare=False)

    @classmethod
    def of(cls, position: int, trace: Trace, vocabulary: Vocabulary, words: Words) -> Step:
        """Return the record of a trace."""
        return cls(
            position=position,
            token=_text(vocabulary.tokens[trace.token]),
            token_id=trace.token,
            logprob=trace.logprob,
            raw_logprob=trace.raw_logprob,
            rank=trace.rank,
            leading_token=_text(vocabulary.tokens[trace.leader]),
            leading_token_id=trace.leader,
            leading_logprob=trace.leading_logprob,
            leading_allowed=trace.leader_allowed,
            allowed=trace.allowed,
            log_feasible_mass=trace.log_mass,
            ends=trace.token in vocabulary.eos_ids,
            leading_ends=trace.leader in vocabulary.eos_ids,
            left=trace.left,
            state=trace.state,
            log_weight=trace.log_weight,
            _words=words,
        )

    @property
    def probability(self) -> float:
        """The token's probability among the allowed tokens."""
        return math.exp(self.logprob)

    @property
    def raw_probability(self) -> float:
        """The token's probability among all tokens."""
        return math.exp(self.raw_logprob)

    @property
    def leading_probability(self) -> float:
        """The leading token's probability among all tokens."""
        return math.exp(self.leading_logprob)

    @property
    def feasible_mass(self) -> float:
        """The raw probability of all allowed tokens."""
        return math.exp(self.log_feasible_mass)

    @property
    def forced(self) -> bool:
        """True if a single token was allowed."""
        return self.allowed == 1

    @property
    def expected(self) -> str:
        """The guide's expected input, in words."""
        return self._words(self.state)

    @property
    def name(self) -> str:
        """A readable name of the token: its text, EOS, or its number."""
        return _name(self.token, self.ends, self.token_id)

    @property
    def leading_name(self) -> str:
        """A readable name of the leading token."""
        return _name(self.leading_token, self.leading_ends, self.leading_token_id)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of `COLUMNS` by name: numbers, texts, booleans and None."""
        return {column: getattr(self, column) for column in COLUMNS}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _name(text: str | None, ends: bool, token: int) -> str:
    if text is not None:
        return text
    return END if ends else f"<{token}>"


FAR = 0.1
"""Distance from which another search is advised."""
OFTEN_ENOUGH = 1e-3
"""Probability of the constraint from which `Exact` is fast enough."""
PARTICLES = 64


@dataclass(frozen=True)
class Bias:
    """An estimate, from several texts of one prompt, of the bias of sampling under masks.

    texts: number of texts
    distance: estimated total variation distance between masked sampling and the model's own distribution of texts that
        meet the constraint: the largest error of the probability of any set of texts, 0 to 1. error: its standard
        error. The estimate is too low if a few texts have most of the weight (see ess), since more probable texts may
        not have been drawn. It never exceeds (texts - 1) / texts
    log_z: natural logarithm of an unbiased estimate of the probability that the model stays within the constraint
    ess: effective sample size: number of independent draws of the model's own distribution with the same accuracy
    """

    texts: int
    distance: float
    error: float
    log_z: float
    ess: float

    @classmethod
    def of(cls, log_weights: Sequence[float]) -> Bias:
        """Estimate the bias from log-weights of texts, each the sum of the logarithms of its masks' masses.

        The weight of a text x is P(x) / Q(x), with Q masked sampling. Its mean under Q is Z, and the distance between P
        / Z and Q is the mean of max(0, 1 - weight / Z). The error comes from the delta method, since Z is estimated
        too.
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
        """True if the distance is large and statistically significant."""
        return self.distance >= max(FAR, 2 * self.error)

    @property
    def search(self) -> str:
        """The recommended search."""
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
        """The text of the hint."""
        few = self.ess < self.texts / 10
        return (
            f"masked sampling draws other texts than the model would (total variation distance {self.distance:.2f} ± "
            f"{self.error:.2f}{', or more, since few of them have most of the weight' if few else ''}, by "
            f"{self.texts:,} texts): where the shares of texts matter, use search={self.search}"
        )


def late(steps: Sequence[Step], share: float = 0.99) -> tuple[float, tuple[int, ...]] | None:
    """Return the log mass left by masks after texts diverge, and the positions that left less than half; None if
    unknown.

    Up to the first real choice, a constraint takes the same mass from all texts and causes no bias. Texts count as not
    yet diverged while the prefix has this share of masked sampling.
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
