"""A smaller model with the same tokens, which guesses how texts go on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from time import perf_counter

from torch import Tensor

from ...guides.protocol import DEAD
from ..decode.beam_search import common
from ..decode.forward_output import logits_of
from ..decode.randomness import uniform
from ..decode.sequence import SequenceState
from ..memory.pool import BlockPool, TokenPool
from ..memory.tables import BlockTable, Chunk
from ..models.protocol import Model
from ..scores import stack_masks
from ..search import UNUSABLE, Greedy, Sample
from .foreseen import mask_of_guess, state_after_guess

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
