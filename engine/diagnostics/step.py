"""Records of tokens, one each, and what the masks have made of a text's chance by them."""

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
    """Expectations of a guide in its states, in words; asked for when they are wanted, once for each state."""

    def __init__(self, guide: Guide | None) -> None:
        self.guide = guide
        self._known: dict[int, str] = {}

    def __call__(self, state: int) -> str:
        if self.guide is None:
            return self._known.get(state, "anything")
        if state not in self._known:
            self._known[state] = expected(self.guide, state)
        return self._known[state]

    def __getstate__(self) -> Mapping[str, Any]:
        """The answers so far: a guide holds locks, and stays where it is."""
        return {"guide": None, "_known": self._known}


@dataclass(frozen=True)
class Step:
    """A choice: the token, what the model would have chosen freely, and what the constraint left to choose from.

    position: of the token, from 0; with a healed prompt the first tokens may still be within the end of that
    token, leading_token: their texts, None for those without, as EOS; bytes that are no text as \\xNN
    leading_...: of the token that is likeliest without the constraint; leading_allowed: whether it was allowed
    probability, raw_probability: of the token, among the allowed ones and among all, at temperature 1;
        logprob and so on are their natural logarithms
    rank: of the token without the constraint, from 1; equals share one
    allowed: how many tokens were; forced: whether it was only one
    feasible_mass: the raw probability of everything allowed, 1 without a constraint
    ends, leading_ends: whether they are EOS
    left: how many tokens `max_tokens` still allowed; state: of the guide, before the token
    log_weight: log_feasible_mass at the temperature of `Sample`; None with its filters, with penalties and biases, and
        with other searches, of which no weight makes up for the masks
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
        """The record of a trace."""
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
        """Of the token, among the allowed ones."""
        return math.exp(self.logprob)

    @property
    def raw_probability(self) -> float:
        """Of the token, among all."""
        return math.exp(self.raw_logprob)

    @property
    def leading_probability(self) -> float:
        """Of the leading token, among all."""
        return math.exp(self.leading_logprob)

    @property
    def feasible_mass(self) -> float:
        """The raw probability of everything allowed."""
        return math.exp(self.log_feasible_mass)

    @property
    def forced(self) -> bool:
        """True if a single token was allowed."""
        return self.allowed == 1

    @property
    def expected(self) -> str:
        """The guide's expectation, in words."""
        return self._words(self.state)

    @property
    def name(self) -> str:
        """The token for people: its text, or EOS, or its number."""
        return _name(self.token, self.ends, self.token_id)

    @property
    def leading_name(self) -> str:
        """The leading token likewise."""
        return _name(self.leading_token, self.leading_ends, self.leading_token_id)

    def to_dict(self) -> dict[str, Any]:
        """The columns of `COLUMNS` by name: numbers, texts, booleans and None."""
        return {column: getattr(self, column) for column in COLUMNS}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _name(text: str | None, ends: bool, token: int) -> str:
    if text is not None:
        return text
    return END if ends else f"<{token}>"


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
