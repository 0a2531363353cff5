"""Drafts: proposed next tokens, verified in one forward pass with the known ones.

Sources are repetitions in the text, the constraint, and a draft model. Acceptance rates are measured even if drafts are
not read: each chosen token shows whether its draft was right. Drafts are read if the measured costs make this faster,
see `ForwardCosts`. A token is always chosen from the logits at its place with the sequence's own random number, and the
draft is only compared with it. Drafts therefore do not change the output.
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
"""Greatest number of foreseen bytes that are tokenized."""
_REMEMBERED = 4096


class ForcedDrafts:
    """Passes quoted and forced text of constraints to draft histories, as tokens."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._cached: dict[bytes, list[int]] = {}

    def look_up(
        self, trail: DraftHistory, guide_cache: GuideCache, state: int, is_of_use: Callable[[int], bool]
    ) -> None:
        """Look up the text that follows a state.

        is_of_use: tests whether drafts of a kind are worth a lookup, which may take as long as a pass of a small model
        """
        ahead = trail.ahead
        if not ahead[QUOTED] and not trail.is_sure and is_of_use(QUOTED):
            ahead[QUOTED] = self._tokens(guide_cache.ahead(state))
        if not ahead[QUOTED] and not ahead[SPELT] and is_of_use(SPELT):
            ahead[SPELT] = self._tokens(guide_cache.forced_bytes(state))

    def _tokens(self, data: bytes) -> list[int]:
        """Return the tokens of a text, without the last one if the text may be cut inside it.

        Return nothing if the tokenizer cannot encode exactly these bytes, for example if it adds a space.
        """
        found = self._cached.get(data)
        if found is None:
            if len(self._cached) >= _REMEMBERED:
                self._cached.clear()
            found = self._cached[data] = self._spell(data)
        return found

    def _spell(self, data: bytes) -> list[int]:
        # drop a character that is cut off at the end
        text = data[:_LONGEST].decode(errors="ignore")
        if not text:
            return []
        try:
            encoded: Any = self._model.tokenizer.encode(text)
            ids: list[int] = list(getattr(encoded, "ids", encoded))
        except Exception:  # drafts are optional
            return []
        spelling = self._model.vocabulary.tokens
        tokens = [token for token in ids if spelling[token]]
        written = b"".join(spelling[token] or b"" for token in tokens)
        return tokens[: len(tokens) - (len(data) > len(written))] if text.encode() == written else []


def state_after_draft(sequence: SequenceState, state: int, token: int) -> int:
    """Return the state after a drafted token; DEAD if the constraint rejects it or it ends the text."""
    request = sequence.request
    if request.stops(state, token):
        return DEAD
    guide_cache = request.guide_cache(state)
    if guide_cache is None:
        return state
    try:
        return guide_cache.guide.advance(state, token)
    except Exception:  # the sequence itself repeats the query if it gets there
        return DEAD


def mask_of_draft(guide_cache: GuideCache, state: int, stop_ids: frozenset[int]) -> Mask | None:
    """Return the mask of a state; None if that fails."""
    try:
        return guide_cache.mask(state, stop_ids)
    except Exception:  # as above
        return None


_FORGET = 0.97
_RIDGE = 2.0
"""Weight of the former slope, as the variance of batch sizes that counterbalances it."""
_OUTLIER = 2.0
_STALE = 3.0
"""A step this many times faster than expected resets the estimate."""
_MARGIN = 1.1
_DOUBT = 0.004
_SURE = 0.8
"""A slope too steep for drafts of acceptance rate `_SURE` decays by `_DOUBT` each step, since without drafts nothing
would correct it."""
FREE_TOKENS = 15
"""Initial estimate of the number of extra tokens that cost as much as a step of one."""


class ForwardCosts:
    """An estimate of the time of a forward pass as `begin + token_seconds * tokens`, which forgets old steps.

    The choice of tokens is excluded, since it costs the same with and without drafts.
    Source: least squares with exponential forgetting, the slope regularised towards its former value.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._tokens = self._seconds = 0.0
        self._variance = self._covariance = 0.0
        self._token_seconds: float | None = None

    @property
    def token_seconds(self) -> float:
        """Seconds for one more token."""
        if self._token_seconds is None:
            return self._seconds / (self._tokens + FREE_TOKENS)
        return self._token_seconds

    def time(self, tokens: float) -> float:
        """Return the seconds of a step of `tokens` tokens."""
        return max(self._seconds + self.token_seconds * (tokens - self._tokens), self.token_seconds * tokens)

    def note(self, tokens: int, seconds: float) -> None:
        """Update the estimate with a step. An outlier counts less, since the machine may have been busy otherwise."""
        if not self._steps:
            self._begin(tokens, seconds)
            return
        self._steps += 1
        if _STALE * seconds < self.time(tokens):
            self._begin(tokens, seconds)  # kernels were compiled or loaded before, or the machine was busy
            return
        if self._steps > FREE_TOKENS:
            seconds = min(seconds, _OUTLIER * self.time(tokens))
        share = max(1 - _FORGET, 1 / self._steps)
        more, longer = tokens - self._tokens, seconds - self._seconds
        before = self.token_seconds
        if before * self._tokens * _MARGIN > _SURE * self._seconds:
            before -= _DOUBT * before
        self._tokens += share * more
        self._seconds += share * longer
        self._variance = (1 - share) * (self._variance + share * more * more)
        self._covariance = (1 - share) * (self._covariance + share * more * longer)
        if more or self._token_seconds is not None:
            slope = (self._covariance + _RIDGE * before) / (self._variance + _RIDGE)
            self._token_seconds = min(max(slope, 0.0), self._seconds / self._tokens)

    def _begin(self, tokens: int, seconds: float) -> None:
        """Restart the estimate from this step, but keep a slope that is still plausible."""
        self._steps, self._tokens, self._seconds = 1, tokens, seconds
        self._variance = self._covariance = 0.0
        if self._token_seconds is not None and self._token_seconds * tokens > seconds:
            self._token_seconds = None

    def pays(self, probability: float, tokens: float, useful: float, besides: float = 0.0) -> bool:
        """Test whether one more token pays in a step of `tokens`, of which `useful` are expected to be kept.

        It pays if it brings more per time than the whole step. besides: seconds to draft it
        """
        return probability * self.time(tokens) > _MARGIN * (self.token_seconds + besides) * useful


CATCH_UP = 256
"""Number of tokens that a draft model reads in a step to catch up."""


class DraftModel:
    """A draft model with its own KV cache.

    blocks: size of that cache; a sequence without free blocks gets no drafts
    seconds: average time to draft a token
    """

    def __init__(self, model: Model, blocks: int) -> None:
        self.seconds = 0.0
        self._model = model
        self._memory = model.make_memory(blocks if model.block_bytes else 0)
        self._pool = BlockPool(blocks, model.window) if model.block_bytes else TokenPool()
        self._tables: dict[SequenceState, BlockTable] = {}
        self._eos = frozenset(model.vocabulary.eos_ids)

    def keep(self, rows: AbstractSet[SequenceState]) -> None:
        """Release the blocks of all sequences but these."""
        for row in self._tables.keys() - rows:
            self._pool.release(self._tables.pop(row))

    def propose(self, rows: Sequence[SequenceState], most: Sequence[int]) -> list[list[int]]:
        """Draft up to `most` tokens for each sequence, under its constraint and with its own random numbers.

        An exception of the model becomes the error of the sequences.
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
        drafted = sum(map(len, found))
        if drafted:
            each = (perf_counter() - begin) / drafted
            self.seconds += _NEWS * (each - self.seconds) if self.seconds else each
        return found

    def _caught_up(self, rows: Sequence[SequenceState]) -> list[int]:
        """Read the sequences' tokens. Return the numbers of those with only the last token unread."""
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
        """Test whether blocks are available for a text up to `end`, and take exactly these."""
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
        """Draft one more token for some sequences. Return the numbers of those that may get another."""
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
            state = DEAD if token == UNUSABLE or token in self._eos else state_after_draft(rows[n], states[n], token)
            if state != DEAD:
                states[n] = state
                found[n].append(token)
                goes_on.append(n)
        return goes_on

    def _pick(self, row: SequenceState, state: int, ahead: int, logits: Tensor) -> int:
        """Return the sequence's own choice from draft logits [1, V]; UNUSABLE if there is none."""
        request = row.request
        guide_cache = request.guide_cache(state)
        mask = None if guide_cache is None else mask_of_draft(guide_cache, state, request.stop_ids)
        if guide_cache is not None and mask is None:
            return UNUSABLE
        search = request.search if type(request.search) is Sample else _GREEDY
        draw = uniform(request.key, len(row.tokens) + ahead)
        return search.pick(logits, stack_masks([mask], logits), [draw])[0]


_GREEDY = Greedy()
_NEWS = 0.2


WIDEST = 16
"""Greatest number of tokens of a sequence in one pass, drafts included. Attention is fast up to this number."""
SELDOM = 32
"""Drafts that do not pay are tried once in this many times, to measure them again."""
SHARE = 0.25
"""Share of free memory that a draft model may take."""
Asking = tuple[SequenceState, DraftHistory, Model]
"""A sequence without drafts of its own, and the draft model to query."""


@dataclass(slots=True)
class StepDrafts:
    """The drafts of a step by sequence, and the positions among them that need logits of all tokens."""

    tokens: dict[SequenceState, list[int]] = field(default_factory=dict[SequenceState, list[int]])
    wide: dict[SequenceState, list[int]] = field(default_factory=dict[SequenceState, list[int]])

    @property
    def count(self) -> int:
        """The number of drafted tokens."""
        return sum(map(len, self.tokens.values()))

    def read(self, model: Any, readers: Sequence[Any], chunks: Sequence[Chunk], memory: Memory) -> Hidden:
        """Run the forward pass of a step with the drafts appended."""
        both = zip(readers, chunks, strict=True)
        wider = [Chunk(table, [*tokens, *self.tokens.get(reader, ())]) for reader, (table, tokens) in both]
        return model.forward_ends(wider, self.ends(readers), memory)

    def ends(self, readers: Sequence[Any]) -> list[int]:
        """Return the number of last tokens of each reader whose hidden states are needed."""
        return [1 + len(self.tokens.get(reader, ())) for reader in readers]

    def places(self, sequences: Sequence[SequenceState], first: Sequence[int]) -> dict[int, list[int]]:
        """Return the rows that need logits of all tokens by sequence number. first: row of each sequence's first one"""
        return {
            number: [at + shift for shift in self.wide[sequence]]
            for number, (sequence, at) in enumerate(zip(sequences, first, strict=True))
            if sequence in self.tokens
        }


class Drafter:
    """Drafting for the sequences of one model. costs: of its forward passes, if measured before"""

    def __init__(self, model: Model, sequences: Sampler, pool: BlockPool, costs: ForwardCosts | None = None) -> None:
        self.costs = costs or ForwardCosts()
        self._odds = AcceptanceRates()
        self._model = model
        self._sampler = sequences
        self._pool = pool
        self._foreseen = ForcedDrafts(model)
        self._draft_models: dict[int, DraftModel] = {}
        self._queries = 0
        self._eos = frozenset(model.vocabulary.eos_ids)

    @staticmethod
    def suits(model: Model, pool: BlockPool) -> bool:
        """Test whether a model can return hidden states of several last tokens, and drop some of them."""
        return pool.slots is None and isinstance(model, DraftedModel) and model.reads_drafts

    def propose(self, sequences: Sequence[SequenceState], tokens: int) -> StepDrafts | None:
        """Return drafts for sequences that read all their pending tokens; None without any.

        tokens: number of tokens in the step without drafts
        """
        found = StepDrafts()
        useful = float(len(sequences))
        asking: list[Asking] = []
        for sequence in sequences:
            length, draft = len(sequence.tokens), sequence.request.options.draft
            if sequence.request.scores and draft is True:
                continue  # keeps log-probabilities reproducible: they would depend on the measured width of steps
            if (
                not draft
                or not length
                or sequence.left < 2
                or (sequence.trail is not None and length < sequence.trail.wakes)
            ):
                continue
            trail = self._trail(sequence)
            if sequence.guide_cache is not None:
                self._foreseen.look_up(trail, sequence.guide_cache, sequence.state, self._is_of_use(sequence))
            brings = self._draft(sequence, trail, tokens, useful, found)
            tokens += len(found.tokens.get(sequence, ()))
            useful += brings
            if not isinstance(draft, bool) and not brings:
                asking.append((sequence, trail, draft))
            else:
                trail.rest(brings > 0)
        if asking:
            self._query_models(asking, tokens, useful, found)
        for sequence in list(found.tokens):
            self._make_room(sequence, found)
        return found if found.tokens else None

    def advance(self, reading: ForwardOutput[SequenceState], found: StepDrafts) -> None:
        """Choose tokens for sequences, one after the other as long as drafts match."""
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
        """Release what draft models have read of other sequences."""
        if self._draft_models:
            for second in self._draft_models.values():
                second.keep(set(sequences))

    def _trail(self, sequence: SequenceState) -> DraftHistory:
        """Return the draft history of a sequence, up to date."""
        if sequence.trail is None:
            sequence.trail = DraftHistory([*sequence.request.start.prompt, *sequence.tokens], self._odds)
        else:
            self._learn(sequence)
        return sequence.trail

    def _learn(self, sequence: SequenceState) -> None:
        """Append new tokens to a sequence's history. The first was chosen, the others were forced."""
        trail: DraftHistory | None = sequence.trail
        if trail is None:
            return
        length = len(trail.tokens) - len(sequence.request.start.prompt)
        slept = trail.wakes > length
        for place in range(length, len(sequence.tokens)):
            trail.take(sequence.tokens[place], place == length and not slept)

    def _draft(
        self, sequence: SequenceState, trail: DraftHistory, tokens: int, useful: float, found: StepDrafts
    ) -> float:
        """Add as many drafts as pay for one sequence to `found`. Return the expected number of accepted ones."""
        request, state = sequence.request, sequence.state
        most = min(WIDEST - len(sequence.pending), sequence.left - 1)
        drafts = trail.drafts(most)
        drafted: list[int] = []
        wide: list[int] = []
        probability, brings, is_on = 1.0, 0.0, True
        while len(drafted) < most:
            guide_cache, place = request.guide_cache(state), len(drafted)
            allowed = None if guide_cache is None else guide_cache.known(state)
            draft = drafts[place][0] if is_on and place < len(drafts) else -1
            token = allowed.forced if allowed is not None and allowed.forced >= 0 and not request.scores else draft
            if token < 0 or token in self._eos:
                break
            if token == draft:
                probability *= trail.odds.of(drafts[place][1])
                if not self.costs.pays(probability, tokens + place, useful + brings):
                    break
                brings += probability
            else:
                is_on = False
            state = state_after_draft(sequence, state, token)
            if state == DEAD:
                break
            drafted.append(token)
            allowed = None if guide_cache is None or request.scores or request.stop_ids else guide_cache.known(state)
            if allowed is None or allowed.ids is None:
                wide.append(len(drafted))
        if not drafted or not brings:
            return 0.0
        found.tokens[sequence], found.wide[sequence] = drafted, wide
        return brings

    def _query_models(self, asking: Sequence[Asking], tokens: int, useful: float, found: StepDrafts) -> None:
        """Query draft models for sequences without other drafts, sometimes even if it does not pay."""
        by_model: dict[int, list[tuple[SequenceState, DraftHistory, int]]] = {}
        for sequence, trail, draft in asking:
            draft_model = self._draft_model(draft)
            likely, count, brings = trail.odds.of(SECOND), 0, 0.0
            most = min(WIDEST - len(sequence.pending), sequence.left - 1)
            while count < most and self.costs.pays(
                likely ** (count + 1), tokens + count, useful + brings, draft_model.seconds
            ):
                count += 1
                brings += likely**count
            self._queries += 1
            if count == 0 and self._queries % SELDOM == 0:
                count = 1
            if count:
                by_model.setdefault(id(draft), []).append((sequence, trail, count))
            trail.rest(count > 0)
        for key, several in by_model.items():
            proposed = self._draft_models[key].propose(
                [each for each, _, _ in several], [count for _, _, count in several]
            )
            for (sequence, trail, _), drafts in zip(several, proposed, strict=True):
                trail.ahead[SECOND] = drafts
                useful += self._draft(sequence, trail, tokens, useful, found)
                tokens += len(found.tokens.get(sequence, ()))

    def _draft_model(self, model: Model) -> DraftModel:
        """Return the state of a draft model."""
        found = self._draft_models.get(id(model))
        if found is None:
            size, free = model.block_bytes, free_bytes(getattr(model, "device", None))
            most = self._pool.count if free is None or not size else int(free * SHARE) // size
            found = self._draft_models[id(model)] = DraftModel(model, max(1, min(self._pool.count, most)))
        return found

    def _is_of_use(self, sequence: SequenceState) -> Callable[[int], bool]:
        """Return a test whether drafts of a kind pay for a sequence, or are due to be measured."""
        trail, is_due = sequence.trail, len(sequence.tokens) % SELDOM == 0
        assert trail is not None
        return lambda kind: is_due or self.costs.pays(trail.odds.of(kind), 1, 1)

    def _make_room(self, sequence: SequenceState, found: StepDrafts) -> None:
        """Take blocks for a sequence's drafts, or drop drafts without blocks."""
        table, drafted = sequence.table, found.tokens[sequence]
        length = len(table.tokens) + len(sequence.pending)
        if not self._pool.extend(table, length + len(drafted)):
            del drafted[len(table.blocks) * BLOCK - length :]
            found.wide[sequence] = [place for place in found.wide[sequence] if place <= len(drafted)]
            if not drafted:
                del found.tokens[sequence]
