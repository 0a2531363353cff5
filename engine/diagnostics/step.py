"""One token's record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...guides.explain import expected
from ...guides.protocol import Guide
from ...tokenizers_adapter import Vocabulary
from ..scores import Trace

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
