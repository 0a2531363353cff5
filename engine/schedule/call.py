"""Calls: requests that one caller waits for, and what has come of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..decode.beam_group import Group
from ..decode.row import Request, Row
from ..drawing.populations import Population
from .preparing import Preparation

Work = Row | Group | Population


@dataclass(slots=True, eq=False)
class Entry:
    """A request on its way.

    number: which of its call's; arrival: the how-manieth of the engine's; work: how far it has come
    gave_up: whether it waits without memory
    steps: forward passes that read several texts for it; a single text counts its own
    preparation: what it waits for, sitting out steps
    is_again: whether it reads what it has read before, since its memory was taken
    """

    call: Call
    number: int
    arrival: int
    work: Work
    gave_up: bool = False
    steps: int = 0
    preparation: Preparation | None = None
    is_again: bool = False

    def find(self, tokens: int) -> None:
        """Note tokens of its prompt that it need not read, since another text has."""
        if not self.is_again:
            self.call.found[self.number] = self.call.found.get(self.number, 0) + tokens

    @property
    def width(self) -> int:
        """How many texts the model may read for it at once."""
        return self.work.request.width

    @property
    def waits(self) -> bool:
        """Whether it sits out steps until its constraint has found out what may follow."""
        return isinstance(self.work, Row) and self.work.waits


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has come of a request: its texts, or what went wrong."""

    rows: Sequence[Row]
    error: Exception | None = None

    @property
    def tokens(self) -> int:
        """How many tokens its texts have."""
        return sum(len(row.tokens) for row in self.rows)


class Call:
    """Requests of one caller, of which at most `limit` texts run at once; taken up in their order.

    begun: how many were taken up; entries: those on their way; outcomes: those that are done and not yet taken
    waiting: how many threads wait for an outcome, and find out meanwhile what its texts wait for
    found: by request, how many tokens of prompts were in memory when they were to be read
    Each change is one assignment, so that whatever breaks off a step leaves enough to go on from: see `Engine`.
    """

    def __init__(self, requests: Sequence[Request], limit: int) -> None:
        self.requests = list(requests)
        self.limit = limit
        self.begun = 0
        self.entries: dict[int, Entry] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.found: dict[int, int] = {}
        self.is_cancelled = False
        self.waiting = 0
        self._taken: set[int] = set()

    @property
    def done(self) -> bool:
        """Whether everything was taken, or is wanted no more."""
        return self.is_cancelled or len(self._taken) == len(self.requests)

    @property
    def running(self) -> int:
        """How many texts are on their way."""
        return sum(entry.width for entry in self.entries.values())

    @property
    def is_waiting(self) -> bool:
        """Whether there are requests to be taken up, and few enough on their way."""
        if self.is_cancelled or self.begun == len(self.requests):
            return False
        running = self.running
        return not running or running + self.requests[self.begun].width <= self.limit

    def to_prepare(self) -> Preparation | None:
        """What one of its texts waits for, and nobody is at."""
        for entry in list(self.entries.values()):
            found = entry.preparation
            if found is not None and not found.is_taken:
                return found
        return None

    def is_settled(self, number: int) -> bool:
        """Whether a request has its outcome."""
        return number in self.outcomes or number in self._taken

    def take(self, number: int) -> None:
        """Let an outcome go that was looked at."""
        self._taken.add(number)
        self.outcomes.pop(number, None)

    def refuse(self, error: Exception) -> None:
        """Let requests that were not taken up come to nothing, between two steps."""
        for number in range(self.begun, len(self.requests)):
            self.outcomes[number] = Outcome((), error)
            self.begun = number + 1

    def again(self, request: Request) -> None:
        """A further request in the place of one that was taken."""
        self.requests.append(request)
