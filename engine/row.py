"""One text being generated."""

from __future__ import annotations

from dataclasses import dataclass, field

from .constraint import Constraint
from .diagnostics.trace import Trace
from .results import FinishReason
from .stopping import StopStrings


@dataclass(frozen=True, slots=True)
class Request:
    """What one row is to do.

    number: the prompt's place among the caller's; sample: which of its samples
    key: of the row's random numbers
    """

    number: int
    sample: int
    prompt: tuple[int, ...]
    constraint: Constraint | None
    budget: int
    key: int
    stop: StopStrings
    stop_ids: frozenset[int]


@dataclass(slots=True, eq=False)
class Row:
    """How far it has come.

    tokens: generated so far; text: their bytes; pending: not yet read by the model
    scores, raw_scores: log-probabilities of the tokens under the masked and the model's own distribution
    traces: for diagnostics; of every token, and of that which ended the text
    score, siblings: of a text found by beam search, its score and how many texts its prompt has
    """

    request: Request
    state: int
    pending: list[int]
    tokens: list[int] = field(default_factory=list[int])
    text: bytearray = field(default_factory=bytearray)
    scores: list[float] = field(default_factory=list[float])
    raw_scores: list[float] = field(default_factory=list[float])
    end_score: float = 0.0
    traces: list[Trace] = field(default_factory=list[Trace])
    score: float | None = None
    siblings: int | None = None
    finish: FinishReason | None = None

    @property
    def left(self) -> int:
        """How many more tokens may be generated."""
        return self.request.budget - len(self.tokens)
