"""Tokens of prompts that a step may prefill beside sequences that decode, by the time that steps have taken."""

from __future__ import annotations

from typing import Any

from ...checks import positive, shown, whole
from ...errors import OptionError
from ..models.protocol import Model

GAP_MS = 100.0
"""On the CPU. Readers are slower than ten tokens a second; more of a prompt at once is hardly quicker to read."""
CHUNK_OF_DEVICES = 512
LONGEST = 1 << 20
LEAST = 16
"""So many tokens of prompts are read at least, so that they come to their ends whatever else takes long."""
SELDOM = 8
"""Once in so many steps none are, to see what texts take without: steps that are all alike would not say."""
_FIXED = 8.0
"""Until it is measured, a step is taken to cost as much as so many tokens, beside those that it has."""
_GAIN = 0.3
"""The share of what a step took more or less than expected that is taken to be true of the next one."""
_OUTLIER = 2.0
_STALE = 3.0
"""A step that is so many times as quick as expected says that all before were slow: kernels were compiled then."""


class Budget:
    """The time of a step as `fixed + each_text * written + each_token * prompted`, by steps so far.

    Where a step takes longer or less long than expected, each of the three is made larger or smaller, the more, the
    larger its part of the time is; so none comes to be below 0, and on a machine that is slower in everything all are.

    Source: normalised least mean squares, of errors and costs in parts of what is expected.
    """

    def __init__(self) -> None:
        self._fixed = self._each_text = self._each_token = 0.0
        self._planned = 0

    def seconds(self, written: int, prompted: int) -> float:
        """Expected time of a step that continues so many sequences, and reads so many tokens of prompts."""
        return sum(self._parts(written, prompted))

    def prompt_tokens(self, written: int, waiting: int, gap: float, most: int) -> int:
        """Number of tokens of prompts to read beside sequences that are written: as many as fit into `gap` seconds.

        waiting: how many requests have something of their prompts to read. Where the sequences take most of that time
        themselves they have to share: the more requests wait, the more, up to as much time as the sequences have, or
        `gap`.
        """
        self._planned += 1
        if written and self._planned % SELDOM == 0:
            return 0
        texts, each = self.seconds(written, 0), self._each_token
        shared = min(texts, gap) * min(1.0, waiting / max(1, written))
        left = max(gap - texts, shared)
        return max(LEAST, int(min(most, left / each))) if each else LEAST

    def note(self, written: int, prompted: int, seconds: float) -> None:
        """Take down a step. One that took much longer than expected counts for less: the machine did something else."""
        parts = self._parts(written, prompted)
        expected = sum(parts)
        if expected == 0.0:
            self._each_text = self._each_token = seconds / (_FIXED + written + prompted)
            self._fixed = _FIXED * self._each_token
        elif _STALE * seconds < expected:
            self._scale(*[seconds / expected] * 3)
        else:
            shares = [part / expected for part in parts]
            off = _GAIN * (min(seconds / expected, _OUTLIER) - 1) / sum(share * share for share in shares)
            self._scale(*(1 + off * share for share in shares))

    def _parts(self, written: int, prompted: int) -> tuple[float, float, float]:
        return self._fixed, self._each_text * written, self._each_token * prompted

    def _scale(self, fixed: float, each_text: float, each_token: float) -> None:
        self._fixed *= fixed
        self._each_text *= each_text
        self._each_token *= each_token


def chunk_or_gap(model: Model, chunk: Any, max_gap_ms: Any) -> tuple[int | None, float]:
    """Number of tokens of prompts beside texts of other calls, None for what fits the gap; and the gap."""
    if chunk is not None and max_gap_ms is not None:
        raise OptionError(
            f"chunk={shown(chunk)} with max_gap_ms={shown(max_gap_ms)}: both say how much of a prompt is read beside "
            "other texts; give one of them"
        )
    gap = GAP_MS if max_gap_ms is None else positive(max_gap_ms, "max_gap_ms", "milliseconds")
    if chunk is None and max_gap_ms is None and str(getattr(model, "device", "cpu")) != "cpu":
        chunk = CHUNK_OF_DEVICES
    return None if chunk is None else whole(chunk, "chunk", LEAST, LONGEST), gap / 1e3
