"""Searches by many texts for each prompt: what the loop asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from ..decode.reading import Reading
from ..decode.row import Reader, Request, Row
from ..memory.pool import Pool
from ..memory.tables import BlockTable
from ..models.protocol import Model
from ..search import SMC, Exact, Importance
from .attempts import Attempts
from .drawn import Drawn
from .particles import Particles
from .path import Path, Walk
from .trie import Trie, trie_of


class Population(Protocol):
    """The texts of one prompt. readers: those in memory; error: what went wrong with this prompt alone."""

    request: Request
    error: Exception | None

    @property
    def readers(self) -> Sequence[Reader]:
        """What the model reads; those that have nothing pending are kept for others to go on from."""
        ...

    @property
    def done(self) -> bool:
        """Whether it goes on no more."""
        ...

    def again(self, first: Reader) -> None:
        """Have everything to read again, the first reader in that one's table."""
        ...

    def advance(self, read: Sequence[Reader], logits: Tensor) -> None:
        """Go on from the readers that have just read, whose logits are float32 [len(read), V]."""
        ...

    def results(self) -> list[tuple[Path, Drawn]]:
        """The texts of a population that is done, each with how it was drawn."""
        ...


class Populations:
    """Populations of one model. What goes wrong with one becomes its `error`, and does not touch the others."""

    def __init__(self, model: Model, pool: Pool) -> None:
        self._vocabulary = model.vocabulary
        self._pool = pool

    def start(self, request: Request, table: BlockTable) -> Population:
        """A prompt at its beginning."""
        walk, search = Walk(request, self._vocabulary), request.search
        first = Reader(table, list(request.start.prompt))
        if isinstance(search, Exact):
            return Attempts(request, walk, _trie(request, walk), self._pool, first)
        assert isinstance(search, (SMC, Importance))
        return Particles(request, search, walk, self._pool, first)

    def restart(self, population: Population, table: BlockTable) -> Population:
        """The population with everything to read again."""
        population.again(Reader(table, []))
        return population

    def advance(self, populations: Sequence[Population], reading: Reading[Reader]) -> None:
        """Let populations go on whose readers have read; the head is computed once for all."""
        logits = reading.logits(range(len(reading.texts)))
        rows = {id(reader): row for row, reader in enumerate(reading.texts)}
        for population in populations:
            read = [reader for reader in population.readers if id(reader) in rows]
            try:
                population.advance(read, logits[[rows[id(reader)] for reader in read]])
            except Exception as error:
                population.error = error

    def results(self, population: Population) -> list[Row]:
        """The texts of a population that is done."""
        found = population.results()
        rows: list[Row] = []
        for sample, (path, drawn) in enumerate(found):
            row = Row(
                BlockTable(), [], replace(population.request, sample=sample), path.state, siblings=len(found), drawn=drawn
            )
            row.tokens, row.text, row.finish, row.inside = (
                list(path.tokens), bytearray(path.text), path.finish, path.inside,
            )  # fmt: skip
            rows.append(row)
        return rows


def _trie(request: Request, walk: Walk) -> Trie:
    """What is known of the request's texts; nothing where a seed is to repeat, or where there is no constraint."""
    start = request.start
    if not request.learns or start.guide_cache is None:
        return Trie(walk.first())
    assert isinstance(request.search, Exact)
    search = request.search
    target = search.temperature, search.top_k, search.top_p, search.min_p
    key = (start.prompt, start.source, request.budget, target, request.controls, request.stop.strings, request.stop_ids)
    return trie_of(start.guide_cache, key, walk.first())
