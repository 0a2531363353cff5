"""Drafts: guesses of how texts go on, read in one pass with what is known of them, and kept as far as they are right.

Guesses come of what stands in a text, of what its constraint says, and of a smaller model. They are watched before they
are read: each token that is chosen says whether the guess of it was right, so that a text whose guesses are wrong costs
no more than looking. They are read where that is measured to pay, see `ForwardCosts`. A token is chosen as ever, by the
logits at its own place and the sequence's own random number; the guess is only compared with it. So what comes out is
what would come out without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from torch import Tensor

from ..guides.protocol import DEAD, Mask
from .decode.beam_search import common
from .decode.draft_history import QUOTED, SECOND, SPELT, AcceptanceRates, DraftHistory
from .decode.forward_output import ForwardOutput, logits_of
from .decode.guide_cache import GuideCache
from .decode.randomness import uniform
from .decode.sampler import Sampler
from .decode.sequence import SequenceState
from .memory.pool import BlockPool, TokenPool, free_bytes
from .memory.tables import BLOCK, BlockTable, Chunk
from .models.protocol import DraftedModel, Hidden, Memory, Model
from .scores import stack_masks
from .search import UNUSABLE, Greedy, Sample

_LONGEST = 256
"""Bytes of what follows that are looked at."""
_REMEMBERED = 4096


class ForcedDrafts:
    """Tells the trails of a model's texts what their constraints say."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[bytes, list[int]] = {}

    def tell(self, trail: DraftHistory, guide_cache: GuideCache, state: int, is_of_use: Callable[[int], bool]) -> None:
        """Look up how a text goes on that is in a state.

        is_of_use: whether guesses of a kind are; else nothing is looked up, which may take as long as a small model's
            pass
        """
        ahead = trail.ahead
        if not ahead[QUOTED] and not trail.is_sure and is_of_use(QUOTED):
            ahead[QUOTED] = self._tokens(guide_cache.ahead(state))
        if not ahead[QUOTED] and not ahead[SPELT] and is_of_use(SPELT):
            ahead[SPELT] = self._tokens(guide_cache.certain(state))

    def _tokens(self, data: bytes) -> list[int]:
        """The tokens that the model's tokenizer makes of a text, but for its last where that may be cut off in it.

        Nothing where it writes other bytes, such as a space in front, or cannot write them.
        """
        found = self._known.get(data)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[data] = self._spell(data)
        return found

    def _spell(self, data: bytes) -> list[int]:
        # A character that is cut off at the end is left out.
        text = data[:_LONGEST].decode(errors="ignore")
        if not text:
            return []
        try:
            encoded: Any = self._model.tokenizer.encode(text)
            ids: list[int] = list(getattr(encoded, "ids", encoded))
        except Exception:  # nobody asked for these tokens
            return []
        spelling = self._model.vocabulary.tokens
        tokens = [token for token in ids if spelling[token]]
        written = b"".join(spelling[token] or b"" for token in tokens)
        return tokens[: len(tokens) - (len(data) > len(written))] if text.encode() == written else []


def state_after_guess(sequence: SequenceState, state: int, token: int) -> int:
    """The state after a guess; DEAD where the constraint refuses it, or where it would end the text."""
    request = sequence.request
    if request.stops(state, token):
        return DEAD
    guide_cache = request.guide_cache(state)
    if guide_cache is None:
        return state
    own_cache, own = guide_cache.beyond(state)
    entry = own_cache.states.find(own, request.stop_ids)
    known = None if entry is None else entry.after.get(token)
    if known is not None and len(known.tokens) == 1:
        return state - own + known.state.state
    try:
        return guide_cache.guide.advance(state, token)
    except Exception:  # the sequence itself asks again, should it come to that
        return DEAD


def mask_of_guess(guide_cache: GuideCache, state: int, stop_ids: frozenset[int]) -> Mask | None:
    """Mask of a state; None where that cannot be told."""
    try:
        return guide_cache.mask(state, stop_ids)
    except Exception:  # as above
        return None


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


CATCH_UP = 256
"""Tokens of prompts, and of what was written meanwhile, that it reads in a step."""


class DraftModel:
    """A smaller model, and what it has read of each sequence, in memory of its own.

    blocks: of that memory; a sequence for which there is none left gets no guesses
    seconds: about how long it takes to guess a token
    """

    def __init__(self, model: Model, blocks: int) -> None:
        self.seconds = 0.0
        self._model = model
        self._memory = model.make_memory(blocks if model.block_bytes else 0)
        self._pool = BlockPool(blocks, model.window) if model.block_bytes else TokenPool()
        self._tables: dict[SequenceState, BlockTable] = {}
        self._eos = frozenset(model.vocabulary.eos_ids)

    def keep(self, rows: AbstractSet[SequenceState]) -> None:
        """Free what was read of all sequences but these."""
        for row in self._tables.keys() - rows:
            self._pool.release(self._tables.pop(row))

    def guess(self, rows: Sequence[SequenceState], most: Sequence[int]) -> list[list[int]]:
        """Up to so many tokens for each of the sequences, as their constraints allow and by their own random numbers.

        What the model raises becomes the error of the sequences.
        """
        begin = perf_counter()
        found: list[list[int]] = [[] for _ in rows]
        try:
            alive = self._caught_up(rows)
            states = [row.state for row in rows]
            while alive:
                alive = [n for n in self._one_more(rows, alive, states, found) if len(found[n]) < most[n]]
        except Exception as error:
            for row in rows:
                row.error = error
        guessed = sum(map(len, found))
        if guessed:
            each = (perf_counter() - begin) / guessed
            self.seconds += _NEWS * (each - self.seconds) if self.seconds else each
        return found

    def _caught_up(self, rows: Sequence[SequenceState]) -> list[int]:
        """Let it read what the sequences have; the numbers of those of which all but the last token was read."""
        left = CATCH_UP
        chunks: list[Chunk] = []
        alive: list[int] = []
        for number, row in enumerate(rows):
            text = [*row.request.start.prompt, *row.tokens]
            table = self._tables.setdefault(row, BlockTable())
            del table.tokens[common(table.tokens, text[:-1]) :]
            read = len(table.tokens)
            new = text[read : min(len(text) - 1, read + left)]
            is_close = read + len(new) == len(text) - 1
            if not self._has_room(table, read + len(new)):
                continue
            if new:
                chunks.append(Chunk(table, new))
                left -= len(new)
            if is_close:
                alive.append(number)
        if chunks:
            self._model.forward(chunks, self._memory)
            for table, tokens in chunks:
                table.tokens += tokens
        return alive

    def _has_room(self, table: BlockTable, end: int) -> bool:
        """True if there are blocks for a text up to `end`, and no others."""
        pool = self._pool
        if isinstance(pool, TokenPool):
            return True
        pool.shrink(table)
        has_room = pool.extend(table, end)
        if not has_room:
            pool.shrink(table)
        return has_room

    def _one_more(
        self, rows: Sequence[SequenceState], alive: Sequence[int], states: list[int], found: list[list[int]]
    ) -> list[int]:
        """A further token for some sequences; those that may get another one."""
        alive = [n for n in alive if self._has_room(table := self._tables[rows[n]], len(table.tokens) + 1)]
        if not alive:
            return []
        chunks = [Chunk(self._tables[rows[n]], [*rows[n].tokens[-1:], *found[n]][-1:]) for n in alive]
        hidden = self._model.forward(chunks, self._memory)
        for table, tokens in chunks:
            table.tokens += tokens
        logits = logits_of(self._model, hidden, range(len(alive)), None, lambda place: "a draft of the smaller model")
        goes_on: list[int] = []
        for place, n in enumerate(alive):
            token = self._pick(rows[n], states[n], len(found[n]), logits[place : place + 1])
            state = DEAD if token == UNUSABLE or token in self._eos else state_after_guess(rows[n], states[n], token)
            if state != DEAD:
                states[n] = state
                found[n].append(token)
                goes_on.append(n)
        return goes_on

    def _pick(self, row: SequenceState, state: int, ahead: int, logits: Tensor) -> int:
        """The sequence's own choice, if these were its logits [1, V]; UNUSABLE if there is none."""
        request = row.request
        guide_cache = request.guide_cache(state)
        mask = None if guide_cache is None else mask_of_guess(guide_cache, state, request.stop_ids)
        if guide_cache is not None and mask is None:
            return UNUSABLE
        search = request.search if type(request.search) is Sample else _GREEDY
        draw = uniform(request.key, len(row.tokens) + ahead)
        return search.pick(logits, stack_masks([mask], logits), [draw])[0]


_GREEDY = Greedy()
_NEWS = 0.2


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
