"""Costs of reading more tokens in a step, measured, and whether that pays."""

from __future__ import annotations

_FORGET = 0.97
_RIDGE = 2.0
"""A slope that was measured before counts as much as steps whose sizes vary by so much."""
_OUTLIER = 2.0
_STALE = 3.0
"""A step that is so many times as quick as expected says that what was measured before is true no more."""
_MARGIN = 1.1
_DOUBT = 0.004
_SURE = 0.8
"""A slope by which not even guesses that are so likely to be right would pay shrinks by that share with each step:
where no guess is read nothing else would correct it."""
FREE_TOKENS = 15
"""Until it is measured, so many more tokens are taken to cost as much as a step of one."""


class ForwardCosts:
    """The time in which a step reads tokens as `begin + each * tokens`, by steps so far, those long ago counting less.

    What it takes to choose tokens is not in it: that is spent on each of them, whether it was guessed or not.

    Source: least squares with exponential forgetting, the slope drawn to what it was before.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._tokens = self._seconds = 0.0
        self._variance = self._covariance = 0.0
        self._each: float | None = None

    @property
    def each(self) -> float:
        """Seconds for one more token."""
        if self._each is None:
            return self._seconds / (self._tokens + FREE_TOKENS)
        return self._each

    def time(self, tokens: float) -> float:
        """Seconds for a step of so many tokens."""
        return max(self._seconds + self.each * (tokens - self._tokens), self.each * tokens)

    def note(self, tokens: int, seconds: float) -> None:
        """Take down a step. One that took much longer than others counts for less: the machine did something else."""
        if not self._steps:
            self._begin(tokens, seconds)
            return
        self._steps += 1
        if _STALE * seconds < self.time(tokens):
            self._begin(tokens, seconds)  # kernels were compiled or read before, or the machine was busy
            return
        if self._steps > FREE_TOKENS:
            seconds = min(seconds, _OUTLIER * self.time(tokens))
        share = max(1 - _FORGET, 1 / self._steps)
        more, longer = tokens - self._tokens, seconds - self._seconds
        before = self.each
        if before * self._tokens * _MARGIN > _SURE * self._seconds:
            before -= _DOUBT * before
        self._tokens += share * more
        self._seconds += share * longer
        self._variance = (1 - share) * (self._variance + share * more * more)
        self._covariance = (1 - share) * (self._covariance + share * more * longer)
        if more or self._each is not None:
            slope = (self._covariance + _RIDGE * before) / (self._variance + _RIDGE)
            self._each = min(max(slope, 0.0), self._seconds / self._tokens)

    def _begin(self, tokens: int, seconds: float) -> None:
        """Go by this step, and by none before, but for a slope that may still be true."""
        self._steps, self._tokens, self._seconds = 1, tokens, seconds
        self._variance = self._covariance = 0.0
        if self._each is not None and self._each * tokens > seconds:
            self._each = None

    def pays(self, probability: float, tokens: float, useful: float, besides: float = 0.0) -> bool:
        """True if one more token pays in a step of so many, of which so many are expected to be of use.

        That is where it brings more for its time than the step does as a whole. besides: seconds that it takes beside
        the step, to be guessed
        """
        return probability * self.time(tokens) > _MARGIN * (self.each + besides) * useful
