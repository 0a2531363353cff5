"""Searches by many texts for each prompt: what the loop asks of them."""

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
from ..scores import Drawn
from ..search import SMC, Exact, Importance, Target
from .attempts import Attempts
from .distribution import Distribution, Draw, Question, distribution, draw
from .particles import Particles
from .path import PathTrie, SampledPath, Walk, trie_of


class Population(Protocol):
    """The texts of one prompt. readers: those in memory; error: what went wrong with this prompt alone."""

    request: Request
    error: Exception | None

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The sequences that the model reads; those that have nothing pending are kept for others to go on from."""
        ...

    @property
    def done(self) -> bool:
        """True if it goes on no more."""
        ...

    def again(self, first: KVSequence) -> None:
        """Have everything to read again, the first reader in that one's table."""
        ...

    def ask(self, rows: Mapping[int, int]) -> Question:
        """Its question. rows: of its readers that have just read, by their identity, the rows of logits."""
        ...

    def answer(self, found: Distribution, first: int) -> list[Draw]:
        """Take what it asked for, which begins in a row of the distributions; returns what is to be drawn of them."""
        ...

    def take(self, tokens: Sequence[int]) -> None:
        """Go on with the tokens that were drawn."""
        ...

    def results(self) -> list[tuple[SampledPath, Drawn]]:
        """The texts of a population that is done, each with how it was drawn."""
        ...


class Populations:
    """Populations of one model. What goes wrong with one becomes its `error`, and does not touch the others.

    weights: of the model, by which it is known whether what was learnt of its texts is still true
    """

    def __init__(self, model: Model, pool: Pool, weights: Weights) -> None:
        self._weights = weights
        self._vocabulary = model.vocabulary
        self._pool = pool

    def start(self, request: Request, table: BlockTable) -> Population:
        """A prompt at its beginning."""
        walk, search = Walk(request, self._vocabulary), request.search
        first = KVSequence(table, list(request.start.prompt))
        if isinstance(search, Exact):
            return Attempts(request, walk, _trie(self._weights, request, walk), self._pool, first)
        assert isinstance(search, (SMC, Importance))
        return Particles(request, search, walk, self._pool, first)

    def restart(self, population: Population, table: BlockTable) -> Population:
        """The population with everything to read again."""
        population.again(KVSequence(table, []))
        return population

    def advance(self, populations: Sequence[Population], reading: ForwardOutput[KVSequence]) -> None:
        """Let populations go on whose readers have read; those of equal targets are told, and drawn for, together."""
        logits = reading.logits(range(len(reading.texts)))
        rows = {id(reader): row for row, reader in enumerate(reading.texts)}
        asked: dict[Hashable, list[tuple[Population, Question]]] = {}
        for population in populations:
            with _blaming(population):
                asked.setdefault(_target(population.request), []).append((population, population.ask(rows)))
        for pairs in asked.values():
            self._answer(pairs, logits)

    def _answer(self, pairs: Sequence[tuple[Population, Question]], logits: Tensor) -> None:
        """Tell populations of equal targets what they asked for, and let them have tokens."""
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
        """The texts of a population that is done."""
        found = population.results()
        rows: list[SequenceState] = []
        for sample, (path, drawn) in enumerate(found):
            rows.append(SequenceState.of(population.request, path, sample, len(found)))
            rows[-1].drawn = drawn
        return rows


@contextmanager
def _blaming(population: Population) -> Generator[None]:
    """Note what goes wrong in the block as the population's error."""
    try:
        yield
    except Exception as error:
        population.error = error


def _target(request: Request) -> Hashable:
    """The key of what the distributions of a request depend on beside the model."""
    search = request.search
    assert isinstance(search, Target)
    return tuple(search.random.values())


def _trie(weights: Weights, request: Request, walk: Walk) -> PathTrie:
    """The trie of the request's texts; empty where a seed is to repeat, or where there is no constraint.

    Of a model that torch holds it is forgotten when its weights have changed.
    """
    start = request.start
    if not request.learns or start.guide_cache is None:
        return PathTrie(walk.first())
    bias = frozenset(request.bias.added.items()), request.bias.banned
    ends = request.stop.strings, request.stop_ids
    said = weights.state(), request.suppressed, request.options.controls, bias
    key = (start.prompt, start.source, request.budget, _target(request), said, ends)
    return trie_of(start.guide_cache, key, walk.first())
