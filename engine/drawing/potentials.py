"""Potentials: callers' functions on texts, checked."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from ...checks import shown
from ...errors import OptionError
from ..search import SMC
from .path import SampledPath

GREATEST = 1e300
"""Sums and differences of logarithms of weights stay finite."""


class Potentials:
    """The functions of a search, each asked once about a text as it is drawn."""

    def __init__(self, search: SMC) -> None:
        self.accepts = search.accepts
        self._potential = search.potential
        self._last: tuple[SampledPath, float] | None = None

    def of(self, path: SampledPath) -> float:
        """The logarithm of the weight of a text; 0 without a potential."""
        if self._potential is None:
            return 0.0
        if self._last is None or self._last[0] is not path:
            self._last = path, _log_weight(self._potential(path.said, path.finish is not None))
        return self._last[1]

    def accepted(self, path: SampledPath) -> bool:
        """True if a text may be."""
        if path.is_dead:
            return False
        assert self.accepts is not None
        found: Any = self.accepts(path.said, path.finish is not None)
        if not _is_boolean(found):
            raise OptionError(f"accepts: {shown(found)} is neither True nor False")
        return bool(found)


def _log_weight(found: Any) -> float:
    if _is_boolean(found):
        return 0.0 if found else -math.inf
    value: Any = found
    if isinstance(found, np.floating):  # of few bits, with which comparing may overflow
        value = float(value)
    if not isinstance(found, Real) or not (value == -math.inf or abs(value) <= GREATEST):
        raise OptionError(
            f"potential: {shown(found)} is no weight; the natural logarithm of one, -inf or a number from "
            f"-{GREATEST:g} to {GREATEST:g}, or True or False"
        )
    return float(value)


def _is_boolean(found: Any) -> bool:
    """True if it is one of Python's or NumPy's."""
    return isinstance(found, (bool, np.bool_))
