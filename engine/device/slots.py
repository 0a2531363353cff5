"""Slots of the device batch. Active slots continue by the state table, and their choices stay in arrays until flushed.

Drafts are read together with the chosen token. A draft is only compared with the choice from the logits at its place
and the sequence's own random number. Only batches with few slots read drafts. Their launches are bound by reading the
weights, so a draft is read if it is at least as likely right as wrong. Each chosen token updates the acceptance rates,
whether its draft was read or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...guides.protocol import DEAD
from ...kernels.device_batch.layout import COUNT, FREE, HEADER, ORIGIN, RESUME, TOKENS, WIDTH, room_of
from ..decode.draft_history import AcceptanceRates, DraftHistory
from ..decode.sequence import Request, SequenceState
from ..drafts import ForcedDrafts
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from ..models.protocol import BEGIN, Model
from ..search import Greedy, Sample
from .backend import MIN_P, TEMPERATURE, TOP_K, TOP_P
from .state_table import DeviceStateTable, StateKey

LIKELY = 0.5


class SlotDrafter:
    """Drafts for sequences of a model. special: bool [V], tokens that end texts; odds: rates of all drafts so far"""

    def __init__(
        self,
        model: Model,
        sequences: Iterable[SequenceState],
        records: DeviceStateTable,
        special: NDArray[np.bool_],
        odds: AcceptanceRates,
    ) -> None:
        for sequence in sequences:
            if sequence.trail is not None:
                missed = sequence.tokens[len(sequence.trail.tokens) - len(sequence.request.start.prompt) :]
                self.learn(sequence, missed, repeat(False))
        self._foreseen = ForcedDrafts(model)
        self._records = records
        self._special = special
        self._odds = odds
        self._led: dict[tuple[int, int], int | None] = {}

    def learn(self, sequence: SequenceState, tokens: Iterable[int], chosen: Iterable[bool]) -> None:
        """Record further tokens of a sequence. chosen: for each token, True if it was not forced"""
        if sequence.trail is not None:
            for token, is_chosen in zip(tokens, chosen, strict=False):
                sequence.trail.take(token, is_chosen)

    def after(self, sequence: SequenceState, noted: Sequence[int], record: int, most: int) -> list[int]:
        """Return the last token of a sequence and up to `most` drafted tokens; nothing if no draft is likely enough.

        noted: tokens that are not flushed to the sequence yet
        record: record of the state after them; the transitions of drafts are added from there
        """
        if not sequence.request.options.draft:
            return []
        if sequence.trail is None:
            sequence.trail = DraftHistory([*sequence.request.start.prompt, *sequence.tokens, *noted], self._odds)
        trail = sequence.trail
        if record != FREE:
            guide_cache, state, *_ = self._records.key(record)
            self._foreseen.look_up(trail, guide_cache, state, lambda kind: trail.odds.of(kind) >= LIKELY)
        drafts = trail.drafts(most)
        if not drafts or trail.odds.of(drafts[0][1]) < LIKELY:
            return []
        found = [trail.tokens[-1]]
        for token, _ in drafts:
            after = self._lead(record, token, sequence)
            if after is None:
                break
            record = after
            found.append(token)
        return found if len(found) > 1 else []

    def _lead(self, record: int, token: int, sequence: SequenceState) -> int | None:
        """Return the record after a drafted token; None if it is unknown or if the token ends the text."""
        if self._special[token]:
            return None
        if record == FREE:
            return FREE
        if (record, token) not in self._led:
            self._led[record, token] = self._find(record, token, sequence.left)
        return self._led[record, token]

    def _find(self, record: int, token: int, left: int) -> int | None:
        before = self._records.key(record)
        if before.left is not None:
            return None
        try:
            state = before.guide_cache.guide.advance(before.state, token)
            return None if state == DEAD else self._records.lead(record, token, before._replace(state=state), left)
        except Exception:  # the sequence itself repeats the query if it gets there
            return None


_NOTED = 64
"""Capacity of a slot for tokens that are not flushed."""


class ActiveSlots:
    """The active slots among `count`, in arrays by slot number.

    A token between known records needs no guide and no Python for each sequence, as long as the budget is not tight.
    special: bool [V], tokens that end a text; drafter: of drafts, if slots are few
    is_active: bool [count]; flying, sent: int32 [count], launches in flight of a slot, and the most tokens these read
    """

    def __init__(
        self,
        count: int,
        pool: BlockPool,
        records: DeviceStateTable,
        special: NDArray[np.bool_],
        drafter: SlotDrafter | None = None,
    ) -> None:
        self._pool = pool
        self._drafter = drafter
        self._records = records
        self._special = special
        self.is_active = np.zeros(count, np.bool_)
        self.flying = np.zeros(count, np.int32)
        self.sent = np.zeros(count, np.int32)
        self._rows: dict[int, SequenceState] = {}
        self._remaining = np.zeros(count, np.int32)
        self._ends = np.zeros(count, np.int32)
        self._capacities = np.zeros(count, np.int32)
        self._blocks = np.zeros((count, 16), np.int32)
        self._last = np.zeros(count, np.int32)
        self._tokens = np.zeros((count, _NOTED), np.int32)
        self._noted_counts = np.zeros(count, np.int32)
        self._steps = np.zeros(count, np.int32)
        self._constants = np.zeros((count, HEADER - ORIGIN), np.int32)
        self._choices = np.zeros((4, count))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, slot: BatchSlot, choices: NDArray[np.float64]) -> None:
        """Activate a slot whose last choice led to a known record and is being read by launches in flight.

        choices: float64 [4], its sampling parameters
        """
        number, row = slot.number, slot.row
        self._rows[number] = row
        self.is_active[number] = True
        self.flying[number], self.sent[number] = slot.flying, slot.sent
        self._remaining[number] = row.left
        self._ends[number] = len(row.table.tokens) + slot.sent
        self._constants[number], self._choices[:, number] = slot.constants, choices
        self._last[number], self._noted_counts[number], self._steps[number] = slot.record, 0, 0
        self._store_blocks(number, row)

    def flush(self, slot: BatchSlot, tokens: list[bytes | None]) -> bool:
        """Deactivate a slot and pass noted tokens to its sequence. Return True if there were any.

        tokens: the vocabulary's
        """
        number = slot.number
        row, count = self._rows.pop(number), int(self._noted_counts[number])
        self.is_active[number] = False
        slot.flying, slot.sent = int(self.flying[number]), int(self.sent[number])
        if not count:
            return False
        last = slot.record = int(self._last[number])
        noted: list[int] = self._tokens[number, :count].tolist()
        read = row.pending + noted[:-1]
        self._pool.recognise(row.table, read)
        row.table.tokens += read
        row.pending = noted[-1:]
        row.steps += int(self._steps[number])
        if last != FREE:
            row.state = self._records.key(last).state + row.request.start.tail
        row.text += b"".join([tokens[token] or b"" for token in noted])
        row.tokens += noted
        return True

    @property
    def is_near_forced(self) -> bool:
        """True if a slot's next token, or the one after it, is known to be forced."""
        return bool(self._records.near_forced[self._last[self.is_active]].any())

    def drafts(self, most: int) -> dict[int, DraftedSlot]:
        """Return drafts by slot number, of up to `most` tokens."""
        found: dict[int, DraftedSlot] = {}
        if self._drafter is not None:
            for number, row in self._rows.items():
                noted: list[int] = self._tokens[number, : self._noted_counts[number]].tolist()
                tokens = self._drafter.after(row, noted, int(self._last[number]), most)
                if tokens:
                    found[number] = DraftedSlot(len(row.table.tokens) + len(row.pending) + len(noted) - 1, tokens)
        return found

    def ready(self, width: int) -> tuple[Numbers, NDArray[np.int32]]:
        """Return the slots with room for a token, and how many of `width` tokens each may read."""
        numbers = np.flatnonzero(self.is_active)
        # The last token of a text is not read.
        limits = np.minimum(width, self._remaining[numbers] - self.sent[numbers])
        for place in np.flatnonzero(self._ends[numbers] + limits > self._capacities[numbers]).tolist():
            number = int(numbers[place])
            row = self._rows[number]
            self._pool.extend(row.table, int(self._ends[number] + limits[place]))
            self._store_blocks(number, row)
        limits = np.minimum(limits, self._capacities[numbers] - self._ends[numbers])
        return numbers[limits > 0], limits[limits > 0]

    def _store_blocks(self, number: int, row: SequenceState) -> None:
        """Store the blocks of a sequence."""
        blocks = row.table.blocks
        if len(blocks) > self._blocks.shape[1]:
            wider = np.zeros((len(self._blocks), 4 * len(blocks)), np.int32)
            wider[:, : self._blocks.shape[1]] = self._blocks
            self._blocks = wider
        self._blocks[number, : len(blocks)] = blocks
        self._capacities[number] = len(blocks) * BLOCK

    def longest(self, numbers: Numbers) -> int:
        """Return the greatest number of blocks of these slots."""
        return int(self._capacities[numbers].max(initial=0)) // BLOCK

    def write_launch(
        self,
        numbers: Numbers,
        limits: NDArray[np.int32],
        rows: NDArray[np.int32],
        width: int,
        choices: NDArray[np.float64],
    ) -> None:
        """Write the input of a launch for active slots, and count it as in flight.

        limits: the most tokens that each slot reads
        rows, choices: of all slots, see `Launch`
        """
        rows[numbers, RESUME] = 1
        rows[numbers, WIDTH] = limits
        rows[numbers, ORIGIN:HEADER] = self._constants[numbers]
        first = HEADER + room_of(width)
        most = min(rows.shape[1] - first, self._blocks.shape[1])
        rows[numbers, first : first + most] = self._blocks[numbers, :most]
        choices[:, numbers] = self._choices[:, numbers]
        self._ends[numbers] += limits
        self.sent[numbers] += limits
        self.flying[numbers] += 1

    def take(self, numbers: Numbers, limits: NDArray[np.int32], answer: NDArray[np.int32]) -> tuple[int, Numbers]:
        """Note the tokens that a launch chose. Return their number, and the indices of slots that the host has to
        check.

        limits: the most tokens that the launch could read for each slot
        """
        width = (answer.shape[1] - TOKENS) // 2
        counts, tokens, after = answer[numbers, COUNT], *np.split(answer[numbers, TOKENS:], 2, axis=1)
        noted_counts, behind = self._noted_counts[numbers], np.arange(width, dtype=np.int32)
        left = self._remaining[numbers, None] - 1 - behind
        fine = (tokens >= 0) & (after >= 0) & ~self._special[np.maximum(tokens, 0)]
        fine &= self._records.known_bound[np.maximum(after, 0)] + 2 <= left
        goes_on = (fine | (behind >= counts[:, None])).all(1) & (counts > 0)
        goes_on &= (noted_counts + counts <= _NOTED) & (self.flying[numbers] > 1)
        good, counts = numbers[goes_on], counts[goes_on]
        for place in range(width):
            some = counts > place
            self._tokens[good[some], noted_counts[goes_on][some] + place] = tokens[goes_on, place][some]
        if self._drafter is not None:
            before = np.column_stack((self._last[good], after[goes_on, :-1]))
            is_chosen = ~self._records.is_forced[before]
            for number, count, *learnt in zip(good.tolist(), counts, tokens[goes_on].tolist(), is_chosen, strict=True):
                self._drafter.learn(self._rows[number], *(each[:count] for each in learnt))
        self._last[good] = after[goes_on, counts - 1]
        self._remaining[good] -= counts
        self._noted_counts[good] += counts
        self._steps[good] += 1
        self._ends[good] -= limits[goes_on] - counts
        self.sent[good] -= limits[goes_on]
        self.flying[good] -= 1
        return int(counts.sum()), np.flatnonzero(~goes_on)


Numbers = NDArray[np.intp]


@dataclass(slots=True, eq=False)
class BatchSlot:
    """A sequence in a slot.

    number: number of the slot
    fresh: pending tokens whose blocks were registered when the step was planned
    constants: constant input columns, from ORIGIN on
    sent: the most tokens that launches in flight read; flying: number of these; is_choosing: the last of them chooses
    record: record after the last choice, FREE if unknown
    attempt: number of the next choice under a closing mask; None without one
    was_closing: True if the last choice was under a closing mask
    """

    number: int
    row: SequenceState
    fresh: int
    constants: tuple[int, ...]
    sent: int = 0
    flying: int = 0
    is_choosing: bool = False
    record: int = FREE
    attempt: int | None = None
    was_closing: bool = False


@dataclass(slots=True)
class SlotStep:
    """Work of one slot in a launch.

    count: tokens read, an upper bound if it resumes; chooses: whether a token is chosen; record: its mask
    era: the slot's era at the start; work of earlier eras is void
    """

    slot: BatchSlot
    count: int
    chooses: bool
    era: int
    record: int = FREE
    resumes: bool = False
    is_closing: bool = False


class DraftedSlot(NamedTuple):
    """A text's last token with its position, and drafted tokens after it."""

    place: int
    tokens: list[int]


class PendingLaunch(NamedTuple):
    """A launch in flight: its parts, and for its active slots the numbers, token limits and eras."""

    handle: Any
    parts: list[SlotStep]
    active: Numbers
    limits: NDArray[np.int32]
    eras: NDArray[np.int64]


_SEARCHES = (Greedy, Sample)
"""Searches that slots implement. Subclasses may choose otherwise."""


def is_plain(sequence: SequenceState) -> bool:
    """Test whether only tokens are requested of a sequence, and few are pending."""
    request: Request = sequence.request
    return (
        not (request.scores or request.options.diagnostics or request.adapter)
        and request.is_plain
        and isinstance(request.options.draft, bool)
        and type(request.search) in _SEARCHES
        and not sequence.is_unread
        and 0 < len(sequence.pending) <= BLOCK
        and (len(sequence.pending) == 1 or bool(sequence.tokens))
        and min(sequence.pending) >= BEGIN  # launches look up tokens, not rows of images or audio
    )


def key_of(sequence: SequenceState, is_closing: bool) -> StateKey | None:
    """Return the key of a sequence's state; None without a constraint."""
    guide_cache = sequence.guide_cache
    if guide_cache is None:
        return None
    return StateKey(
        *guide_cache.unwrap(sequence.state), sequence.request.stop_ids, sequence.left if is_closing else None
    )


def constant_columns(sequence: SequenceState) -> tuple[int, ...]:
    """Return a sequence's constant input columns, from ORIGIN on."""
    low, high = np.array([sequence.request.key], np.uint64).view(np.int32).tolist()
    return len(sequence.request.start.prompt), 0, low, high


def greedy_choices(size: int, *slots: int) -> NDArray[np.float64]:
    """Return the choice columns of greedy search among `size` tokens, float64 [4, *slots]."""
    choices = np.zeros((4, *slots))
    choices[TOP_K], choices[TOP_P] = size, 1
    return choices


def write_choices(choice: Any, search: Sample) -> None:
    """Write the sampling parameters of a search into choice columns."""
    choice[TEMPERATURE], choice[TOP_P], choice[MIN_P] = search.temperature, search.top_p, search.min_p
    if search.top_k is not None:
        choice[TOP_K] = min(search.top_k, choice[TOP_K])


def padded(count: int) -> int:
    """Return the next power of 2."""
    return 1 << (count - 1).bit_length()


def bucket(blocks: int) -> int:
    """Return the next size of 16, 64, 256, ... that holds `blocks`."""
    room = 16
    while room < blocks:
        room *= 4
    return room
