"""Drafts in steps: which rows read guesses behind what they have to read, and what comes of these.

Guesses are watched before they are read: each token that is chosen says whether the guess of it was right, so that a
text whose guesses are wrong costs no more than looking. They are read where that is measured to pay, see `Costs`.
A token is chosen as ever, by the logits at its own place and the row's own random number; the guess is only compared
with it. So what comes out is what would come out without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...guides.protocol import DEAD
from ..decode.reading import Reading
from ..decode.row import Row
from ..decode.row_search import RowSearch
from ..memory.free import free_bytes
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK, Chunk
from ..models.protocol import DraftedModel, Hidden, Memory, Model
from .constraint import after
from .costs import Costs
from .foreseen import Foreseen
from .odds import SECOND, Odds
from .second import Second
from .trail import Trail

WIDEST = 16
"""So many tokens of a row are read at once, guesses and others; attention is quick for up to as many."""
SELDOM = 32
"""Guesses that do not pay are made once in so many times, to see whether they have become better."""
SHARE = 0.25
"""Of free memory, what a smaller model may take."""


class Asking(NamedTuple):
    """A row that has no guesses of its own, and the smaller model that it may ask."""

    row: Row
    trail: Trail
    draft: Model


@dataclass(slots=True)
class Drafted:
    """The guesses of a step, by their rows, and which of their places will want the logits of all tokens."""

    tokens: dict[Row, list[int]] = field(default_factory=dict[Row, list[int]])
    wide: dict[Row, list[int]] = field(default_factory=dict[Row, list[int]])

    @property
    def count(self) -> int:
        """How many guesses there are."""
        return sum(map(len, self.tokens.values()))

    def read(self, model: Any, readers: Sequence[Any], chunks: Sequence[Chunk], memory: Memory) -> Hidden:
        """Read the chunks of a step with the guesses behind them."""
        both = zip(readers, chunks, strict=True)
        wider = [Chunk(table, [*tokens, *self.tokens.get(reader, ())]) for reader, (table, tokens) in both]
        return model.forward_ends(wider, self.ends(readers), memory)

    def ends(self, readers: Sequence[Any]) -> list[int]:
        """How many of its last tokens are wanted of each reader."""
        return [1 + len(self.tokens.get(reader, ())) for reader in readers]

    def places(self, rows: Sequence[Row], first: Sequence[int]) -> dict[int, list[int]]:
        """By the numbers of the rows, each of which has its first place given, those that will want all logits."""
        return {
            number: [at + shift for shift in self.wide[row]]
            for number, (row, at) in enumerate(zip(rows, first, strict=True))
            if row in self.tokens
        }


class Drafter:
    """Guesses for the rows of one model, whose blocks are in a pool. costs: of its steps, where these are known"""

    def __init__(self, model: Model, rows: RowSearch, pool: BlockPool, costs: Costs | None = None) -> None:
        self.costs = costs or Costs()
        self._odds = Odds()
        self._model = model
        self._rows = rows
        self._pool = pool
        self._foreseen = Foreseen(model)
        self._seconds: dict[int, Second] = {}
        self._asked = 0
        self._eos = frozenset(model.vocabulary.eos_ids)

    @staticmethod
    def suits(model: Model, pool: BlockPool) -> bool:
        """Whether a model can say what follows several of the last tokens, and forget some of them."""
        return pool.slots is None and isinstance(model, DraftedModel) and model.reads_drafts

    def guess(self, rows: Sequence[Row], tokens: int) -> Drafted | None:
        """What some of the rows, all of which read to their ends, shall read besides; None if there is nothing.

        tokens: how many the step has without
        """
        found = Drafted()
        useful = float(len(rows))
        asking: list[Asking] = []
        for row in rows:
            made, draft = len(row.tokens), row.request.draft
            if row.request.scores and draft is True:
                continue  # log-probabilities are the same numbers again, however wide steps were measured to pay
            if not draft or not made or row.left < 2 or (row.trail is not None and made < row.trail.wakes):
                continue
            trail = self._trail(row)
            if row.guide_cache is not None:
                self._foreseen.tell(trail, row.guide_cache, row.state, self._is_of_use(row))
            brings = self._draft(row, trail, tokens, useful, found)
            tokens += len(found.tokens.get(row, ()))
            useful += brings
            if not isinstance(draft, bool) and not brings:
                asking.append(Asking(row, trail, draft))
            else:
                trail.rest(brings > 0)
        if asking:
            self._ask(asking, tokens, useful, found)
        for row in list(found.tokens):
            self._make_room(row, found)
        return found if found.tokens else None

    def advance(self, reading: Reading[Row], found: Drafted) -> None:
        """Choose tokens for rows that have read, one after the other as long as guesses are right."""
        at = dict.fromkeys(found.tokens, 0)
        self._rows.advance(reading)
        while reading.texts:
            going: list[int] = []
            shifts: list[int] = []
            for number, row in enumerate(reading.texts):
                drafted = found.tokens.get(row)
                if drafted is None or row.done or row.waits:
                    continue
                rest, pending = drafted[at[row] :], row.pending
                right = next((i for i, (a, b) in enumerate(zip(rest, pending, strict=False)) if a != b), None)
                if right is None:
                    right = min(len(rest), len(pending))
                if right:
                    self._pool.recognise(row.table, pending[:right])
                    row.table.tokens += pending[:right]
                if right == len(pending):
                    self._learn(row)
                    row.pending = []
                    at[row] += right
                    going.append(number)
                    shifts.append(right)
                elif right:
                    row.pending = pending[right:]
            reading = reading.further(going, shifts)
            if reading.texts:
                self._rows.advance(reading)
        for row in found.tokens:
            self._pool.shrink(row.table)

    def keep(self, rows: Sequence[Row]) -> None:
        """Forget what smaller models have read of other rows."""
        if self._seconds:
            for second in self._seconds.values():
                second.keep(set(rows))

    def _trail(self, row: Row) -> Trail:
        """What is known of a row's text, brought up to date."""
        if row.trail is None:
            row.trail = Trail([*row.request.start.prompt, *row.tokens], self._odds)
        else:
            self._learn(row)
        return row.trail

    def _learn(self, row: Row) -> None:
        """Let a row's trail have the tokens that are new: the first was chosen, the others followed from it."""
        trail: Trail | None = row.trail
        if trail is None:
            return
        known = len(trail.tokens) - len(row.request.start.prompt)
        slept = trail.wakes > known
        for place in range(known, len(row.tokens)):
            trail.take(row.tokens[place], place == known and not slept)

    def _draft(self, row: Row, trail: Trail, tokens: int, useful: float, found: Drafted) -> float:
        """Put guesses of a row's next tokens into `found`, as many as pay; how many are expected to be right."""
        request, state = row.request, row.state
        most = min(WIDEST - len(row.pending), row.left - 1)
        guesses = trail.guesses(most)
        drafted: list[int] = []
        wide: list[int] = []
        probability, brings, is_on = 1.0, 0.0, True
        while len(drafted) < most:
            guide_cache, place = request.guide_cache(state), len(drafted)
            known = None if guide_cache is None else guide_cache.known(state)
            guess = guesses[place][0] if is_on and place < len(guesses) else -1
            token = known.forced if known is not None and known.forced >= 0 and not request.scores else guess
            if token < 0 or token in self._eos:
                break
            if token == guess:
                probability *= trail.odds.of(guesses[place][1])
                if not self.costs.pays(probability, tokens + place, useful + brings):
                    break
                brings += probability
            else:
                is_on = False
            state = after(row, state, token)
            if state == DEAD:
                break
            drafted.append(token)
            known = None if guide_cache is None or request.scores or request.stop_ids else guide_cache.known(state)
            if known is None or known.ids is None:
                wide.append(len(drafted))
        if not drafted or not brings:
            return 0.0
        found.tokens[row], found.wide[row] = drafted, wide
        return brings

    def _ask(self, asking: Sequence[Asking], tokens: int, useful: float, found: Drafted) -> None:
        """Let smaller models guess for rows that have nothing else; now and then even where that does not pay."""
        asked: dict[int, list[tuple[Asking, int]]] = {}
        for each in asking:
            row, second = each.row, self._second(each.draft)
            likely, count, brings = each.trail.odds.of(SECOND), 0, 0.0
            most = min(WIDEST - len(row.pending), row.left - 1)
            while count < most and self.costs.pays(
                likely ** (count + 1), tokens + count, useful + brings, second.seconds
            ):
                count += 1
                brings += likely**count
            self._asked += 1
            if count == 0 and self._asked % SELDOM == 0:
                count = 1
            if count:
                asked.setdefault(id(each.draft), []).append((each, count))
            each.trail.rest(count > 0)
        for key, several in asked.items():
            guessed = self._seconds[key].guess([each.row for each, _ in several], [count for _, count in several])
            for (each, _), guesses in zip(several, guessed, strict=True):
                each.trail.ahead[SECOND] = guesses
                useful += self._draft(each.row, each.trail, tokens, useful, found)
                tokens += len(found.tokens.get(each.row, ()))

    def _second(self, model: Model) -> Second:
        """What a smaller model has read."""
        found = self._seconds.get(id(model))
        if found is None:
            size, free = model.block_bytes, free_bytes(getattr(model, "device", None))
            most = self._pool.count if free is None or not size else int(free * SHARE) // size
            found = self._seconds[id(model)] = Second(model, max(1, min(self._pool.count, most)))
        return found

    def _is_of_use(self, row: Row) -> Callable[[int], bool]:
        """Whether guesses of a kind pay for a row, or it is time to see whether they would."""
        trail, is_due = row.trail, len(row.tokens) % SELDOM == 0
        assert trail is not None
        return lambda kind: is_due or self.costs.pays(trail.odds.of(kind), 1, 1)

    def _make_room(self, row: Row, found: Drafted) -> None:
        """Take blocks for a row's guesses, or leave out those for which there are none."""
        table, drafted = row.table, found.tokens[row]
        known = len(table.tokens) + len(row.pending)
        if not self._pool.extend(table, known + len(drafted)):
            del drafted[len(table.blocks) * BLOCK - known :]
            found.wide[row] = [place for place in found.wide[row] if place <= len(drafted)]
            if not drafted:
                del found.tokens[row]
