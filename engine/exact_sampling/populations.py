"""Searches with many texts for each prompt, and their interface to the decode loop."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from ..decode.forward_output import ForwardOutput
from ..decode.sequence import KVSequence, Request, SequenceState
from ..memory.pool import Pool
from ..memory.tables import BlockTable
from ..memory.weights import Weights
from ..models.protocol import Model
from ..scores import SampleStatistics
from ..search import SMC, Exact, Importance, Target
from .attempts import Attempts
from .distribution import Distribution, Draw, LogitsQuery, distribution, draw
from .particles import Particles
from .path import PathTrie, SampledPath, Walk, trie_of


class Population(Protocol):
    """The texts of one prompt. error: an error of this prompt alone"""

    request: Request
    error: Exception | None

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The KV sequences that the model reads. Those without pending tokens are kept to be forked."""
        ...

    @property
    def done(self) -> bool:
        """True if the population is finished or has failed."""
        ...

    def restart(self, first: KVSequence) -> None:
        """Mark all tokens as unread. The first sequence uses the table of `first`."""
        ...

    def ask(self, rows: Mapping[int, int]) -> LogitsQuery:
        """Return the query of this step. rows: row of the logits by id of each KV sequence that was read"""
        ...

    def answer(self, found: Distribution, first: int) -> list[Draw]:
        """Receive the queried distributions, from row `first` on. Return the requested draws."""
        ...

    def take(self, tokens: Sequence[int]) -> None:
        """Continue with the drawn tokens."""
        ...

    def results(self) -> list[tuple[SampledPath, SampleStatistics]]:
        """Return the texts of a finished population with their sampling statistics."""
        ...


class Populations:
    """Populations of one model. An error of one is stored in its `error` and does not affect the others.

    weights: detects whether tries still describe the model's weights
    """

    def __init__(self, model: Model, pool: Pool, weights: Weights) -> None:
        self._weights = weights
        self._vocabulary = model.vocabulary
        self._pool = pool

    def start(self, request: Request, table: BlockTable) -> Population:
        """Return the population of a prompt before its first token."""
        walk, search = Walk(request, self._vocabulary), request.search
        first = KVSequence(table, list(request.start.prompt))
        if isinstance(search, Exact):
            return Attempts(request, walk, _trie(self._weights, request, walk), self._pool, first)
        assert isinstance(search, (SMC, Importance))
        return Particles(request, search, walk, self._pool, first)

    def restart(self, population: Population, table: BlockTable) -> Population:
        """Return the population with all tokens unread."""
        population.restart(KVSequence(table, []))
        return population

    def advance(self, populations: Sequence[Population], reading: ForwardOutput[KVSequence]) -> None:
        """Advance populations whose KV sequences were read. Populations of equal targets share one batched draw."""
        logits = reading.logits(range(len(reading.texts)))
        rows = {id(reader): row for row, reader in enumerate(reading.texts)}
        queries: dict[Hashable, list[tuple[Population, LogitsQuery]]] = {}
        for population in populations:
            with _blaming(population):
                queries.setdefault(_target(population.request), []).append((population, population.ask(rows)))
        for pairs in queries.values():
            self._answer(pairs, logits)

    def _answer(self, pairs: Sequence[tuple[Population, LogitsQuery]], logits: Tensor) -> None:
        """Answer the queries of populations with equal targets, and pass the drawn tokens to them."""
        questions = [question for _, question in pairs]
        selected = logits[[row for question in questions for row in question.rows]]
        requests = [population.request for population, question in pairs for _ in question.rows]
        if any(request.is_changed for request in requests):
            selected = selected.clone()
            paths = [path for question in questions for path in question.paths]
            for scores, request, path in zip(selected, requests, paths, strict=True):
                request.changed(scores, path.tokens, path.inside, path.state)
                scores[request.left_out(path.tokens, path.inside, path.state)] = -torch.inf
        target = pairs[0][0].request.search
        assert isinstance(target, Target)
        masks = [mask for question in questions for mask in question.masks]
        found = distribution(selected, masks, target)
        drawn: list[tuple[Population, list[Draw]]] = []
        first = 0
        for population, question in pairs:
            with _blaming(population):
                drawn.append((population, population.answer(found, first)))
            first += len(question.rows)
        tokens = iter(draw(found, [one for _, several in drawn for one in several]))
        for population, several in drawn:
            with _blaming(population):
                population.take([next(tokens) for _ in several])

    def results(self, population: Population) -> list[SequenceState]:
        """Return the texts of a finished population."""
        found = population.results()
        rows: list[SequenceState] = []
        for sample, (path, drawn) in enumerate(found):
            rows.append(SequenceState.of(population.request, path, sample, len(found)))
            rows[-1].drawn = drawn
        return rows


@contextmanager
def _blaming(population: Population) -> Generator[None]:
    """Store an exception in the block as the population's error."""
    try:
        yield
    except Exception as error:
        population.error = error


def _target(request: Request) -> Hashable:
    """Return a key of the target's parameters, which with the model determine the distributions."""
    search = request.search
    assert isinstance(search, Target)
    return tuple(search.random.values())


def _trie(weights: Weights, request: Request, walk: Walk) -> PathTrie:
    """Return the trie of a request. It is a new one if a seed must reproduce results, or without a constraint.

    The key includes the state of the weights, so that a trie is not reused after they change.
    """
    start = request.start
    if not request.learns or start.guide_cache is None:
        return PathTrie(walk.first())
    bias = frozenset(request.bias.added.items()), request.bias.banned
    ends = request.stop.strings, request.stop_ids
    settings = weights.state(), request.suppressed, request.options.controls, bias
    key = (start.prompt, start.source, request.budget, _target(request), settings, ends)
    return trie_of(start.guide_cache, key, walk.first())
