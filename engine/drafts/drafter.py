"""Drafts in steps: which sequences read guesses behind what they have to read, and what comes of these.

Guesses are watched before they are read: each token that is chosen says whether the guess of it was right, so that a
text whose guesses are wrong costs no more than looking. They are read where that is measured to pay, see
`ForwardCosts`. A token is chosen as ever, by the logits at its own place and the sequence's own random number; the
guess is only compared with it. So what comes out is what would come out without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...guides.protocol import DEAD
from ..decode.draft_history import SECOND, AcceptanceRates, DraftHistory
from ..decode.forward_output import ForwardOutput
from ..decode.sampler import Sampler
from ..decode.sequence import SequenceState
from ..memory.free import free_bytes
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK, Chunk
from ..models.protocol import DraftedModel, Hidden, Memory, Model
from .costs import ForwardCosts
from .foreseen import ForcedDrafts, state_after_guess
from .second import DraftModel

WIDEST = 16
"""So many tokens of a sequence are read at once, guesses and others; attention is quick for up to as many."""
SELDOM = 32
"""Guesses that do not pay are made once in so many times, to see whether they have become better."""
SHARE = 0.25
"""Of free memory, what a smaller model may take."""
Asking = tuple[SequenceState, DraftHistory, Model]
"""A sequence that has no guesses of its own, and the smaller model that it may ask."""


@dataclass(slots=True)
class Drafted:
    """The guesses of a step, by their sequences, and which of their places will want the logits of all tokens."""

    tokens: dict[SequenceState, list[int]] = field(default_factory=dict[SequenceState, list[int]])
    wide: dict[SequenceState, list[int]] = field(default_factory=dict[SequenceState, list[int]])

    @property
    def count(self) -> int:
        """Number of guesses."""
        return sum(map(len, self.tokens.values()))

    def read(self, model: Any, readers: Sequence[Any], chunks: Sequence[Chunk], memory: Memory) -> Hidden:
        """Read the chunks of a step with the guesses behind them."""
        both = zip(readers, chunks, strict=True)
        wider = [Chunk(table, [*tokens, *self.tokens.get(reader, ())]) for reader, (table, tokens) in both]
        return model.forward_ends(wider, self.ends(readers), memory)

    def ends(self, readers: Sequence[Any]) -> list[int]:
        """Number of last tokens that are wanted of each reader."""
        return [1 + len(self.tokens.get(reader, ())) for reader in readers]

    def places(self, sequences: Sequence[SequenceState], first: Sequence[int]) -> dict[int, list[int]]:
        """By the numbers of the sequences, each of which has its first place given, those that will want all logits."""
        return {
            number: [at + shift for shift in self.wide[sequence]]
            for number, (sequence, at) in enumerate(zip(sequences, first, strict=True))
            if sequence in self.tokens
        }


class Drafter:
    """Guesses for the sequences of one model, whose blocks are in a pool. costs: of its steps, where these are known"""

    def __init__(self, model: Model, sequences: Sampler, pool: BlockPool, costs: ForwardCosts | None = None) -> None:
        self.costs = costs or ForwardCosts()
        self._odds = AcceptanceRates()
        self._model = model
        self._sampler = sequences
        self._pool = pool
        self._foreseen = ForcedDrafts(model)
        self._seconds: dict[int, DraftModel] = {}
        self._asked = 0
        self._eos = frozenset(model.vocabulary.eos_ids)

    @staticmethod
    def suits(model: Model, pool: BlockPool) -> bool:
        """True if a model can say what follows several of the last tokens, and forget some of them."""
        return pool.slots is None and isinstance(model, DraftedModel) and model.reads_drafts

    def guess(self, sequences: Sequence[SequenceState], tokens: int) -> Drafted | None:
        """Guesses that some of the sequences, all of which read to their ends, read besides; None without any.

        tokens: how many the step has without
        """
        found = Drafted()
        useful = float(len(sequences))
        asking: list[Asking] = []
        for sequence in sequences:
            made, draft = len(sequence.tokens), sequence.request.options.draft
            if sequence.request.scores and draft is True:
                continue  # log-probabilities are the same numbers again, however wide steps were measured to pay
            if (
                not draft
                or not made
                or sequence.left < 2
                or (sequence.trail is not None and made < sequence.trail.wakes)
            ):
                continue
            trail = self._trail(sequence)
            if sequence.guide_cache is not None:
                self._foreseen.tell(trail, sequence.guide_cache, sequence.state, self._is_of_use(sequence))
            brings = self._draft(sequence, trail, tokens, useful, found)
            tokens += len(found.tokens.get(sequence, ()))
            useful += brings
            if not isinstance(draft, bool) and not brings:
                asking.append((sequence, trail, draft))
            else:
                trail.rest(brings > 0)
        if asking:
            self._ask(asking, tokens, useful, found)
        for sequence in list(found.tokens):
            self._make_room(sequence, found)
        return found if found.tokens else None

    def advance(self, reading: ForwardOutput[SequenceState], found: Drafted) -> None:
        """Choose tokens for sequences that have read, one after the other as long as guesses are right."""
        at = dict.fromkeys(found.tokens, 0)
        self._sampler.advance(reading)
        while reading.texts:
            going: list[int] = []
            shifts: list[int] = []
            for number, sequence in enumerate(reading.texts):
                drafted = found.tokens.get(sequence)
                if drafted is None or sequence.done or sequence.waits:
                    continue
                rest, pending = drafted[at[sequence] :], sequence.pending
                right = next((i for i, (a, b) in enumerate(zip(rest, pending, strict=False)) if a != b), None)
                if right is None:
                    right = min(len(rest), len(pending))
                if right:
                    self._pool.recognise(sequence.table, pending[:right])
                    sequence.table.tokens += pending[:right]
                if right == len(pending):
                    self._learn(sequence)
                    sequence.pending = []
                    at[sequence] += right
                    going.append(number)
                    shifts.append(right)
                elif right:
                    sequence.pending = pending[right:]
            reading = reading.further(going, shifts)
            if reading.texts:
                self._sampler.advance(reading)
        for sequence in found.tokens:
            self._pool.shrink(sequence.table)

    def keep(self, sequences: Sequence[SequenceState]) -> None:
        """Forget what smaller models have read of other sequences."""
        if self._seconds:
            for second in self._seconds.values():
                second.keep(set(sequences))

    def _trail(self, sequence: SequenceState) -> DraftHistory:
        """The history of a sequence's text, brought up to date."""
        if sequence.trail is None:
            sequence.trail = DraftHistory([*sequence.request.start.prompt, *sequence.tokens], self._odds)
        else:
            self._learn(sequence)
        return sequence.trail

    def _learn(self, sequence: SequenceState) -> None:
        """Let a sequence's trail have the tokens that are new: the first was chosen, the others followed from it."""
        trail: DraftHistory | None = sequence.trail
        if trail is None:
            return
        known = len(trail.tokens) - len(sequence.request.start.prompt)
        slept = trail.wakes > known
        for place in range(known, len(sequence.tokens)):
            trail.take(sequence.tokens[place], place == known and not slept)

    def _draft(self, sequence: SequenceState, trail: DraftHistory, tokens: int, useful: float, found: Drafted) -> float:
        """Put guesses of a sequence's next tokens into `found`, as many as pay; how many are expected to be right."""
        request, state = sequence.request, sequence.state
        most = min(WIDEST - len(sequence.pending), sequence.left - 1)
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
            state = state_after_guess(sequence, state, token)
            if state == DEAD:
                break
            drafted.append(token)
            known = None if guide_cache is None or request.scores or request.stop_ids else guide_cache.known(state)
            if known is None or known.ids is None:
                wide.append(len(drafted))
        if not drafted or not brings:
            return 0.0
        found.tokens[sequence], found.wide[sequence] = drafted, wide
        return brings

    def _ask(self, asking: Sequence[Asking], tokens: int, useful: float, found: Drafted) -> None:
        """Let smaller models guess for sequences that have nothing else; now and then even where that does not pay."""
        asked: dict[int, list[tuple[SequenceState, DraftHistory, int]]] = {}
        for sequence, trail, draft in asking:
            second = self._second(draft)
            likely, count, brings = trail.odds.of(SECOND), 0, 0.0
            most = min(WIDEST - len(sequence.pending), sequence.left - 1)
            while count < most and self.costs.pays(
                likely ** (count + 1), tokens + count, useful + brings, second.seconds
            ):
                count += 1
                brings += likely**count
            self._asked += 1
            if count == 0 and self._asked % SELDOM == 0:
                count = 1
            if count:
                asked.setdefault(id(draft), []).append((sequence, trail, count))
            trail.rest(count > 0)
        for key, several in asked.items():
            guessed = self._seconds[key].guess([each for each, _, _ in several], [count for _, _, count in several])
            for (sequence, trail, _), guesses in zip(several, guessed, strict=True):
                trail.ahead[SECOND] = guesses
                useful += self._draft(sequence, trail, tokens, useful, found)
                tokens += len(found.tokens.get(sequence, ()))

    def _second(self, model: Model) -> DraftModel:
        """The smaller model, with what it has read."""
        found = self._seconds.get(id(model))
        if found is None:
            size, free = model.block_bytes, free_bytes(getattr(model, "device", None))
            most = self._pool.count if free is None or not size else int(free * SHARE) // size
            found = self._seconds[id(model)] = DraftModel(model, max(1, min(self._pool.count, most)))
        return found

    def _is_of_use(self, sequence: SequenceState) -> Callable[[int], bool]:
        """True if guesses of a kind pay for a sequence, or it is time to see whether they would."""
        trail, is_due = sequence.trail, len(sequence.tokens) % SELDOM == 0
        assert trail is not None
        return lambda kind: is_due or self.costs.pays(trail.odds.of(kind), 1, 1)

    def _make_room(self, sequence: SequenceState, found: Drafted) -> None:
        """Take blocks for a sequence's guesses, or leave out those for which there are none."""
        table, drafted = sequence.table, found.tokens[sequence]
        known = len(table.tokens) + len(sequence.pending)
        if not self._pool.extend(table, known + len(drafted)):
            del drafted[len(table.blocks) * BLOCK - known :]
            found.wide[sequence] = [place for place in found.wide[sequence] if place <= len(drafted)]
            if not drafted:
                del found.tokens[sequence]
