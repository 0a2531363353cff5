"""Exact sampling by attempts, each rejected as often as the model would leave the constraint.

An attempt descends the trie by the bounds of the children. At a node whose bound has changed since the attempt was led
there, because the model was queried or other attempts learnt something, it continues with probability new / old. It
therefore ends in a text x with probability P(x) / (the root's bound at its start), whatever is learnt in between.
Accepted texts are independent draws of P given the constraint. They are counted in the order in which their attempts
began. In the order of their ends, short texts would come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import SamplingError
from ...kernels.logits.mask import allowed_ids
from ..decode.randomness import row_key, uniform
from ..decode.sequence import KVSequence, Request
from ..memory.pool import Pool
from ..scores import SampleStatistics
from ..search import SMC, Exact
from .distribution import Distribution, Draw, LogitsQuery
from .particles import Particles
from .path import PathNode, PathTrie, PrefixSequences, SampledPath, Tokens, Walk


@dataclass(slots=True, eq=False)
class Attempt:
    """A descent of the trie.

    bound: the node's bound when the attempt was led there; first_bound: the root's at the start
    """

    number: int
    key: int
    node: PathNode
    bound: float
    first_bound: float


class Attempts:
    """The attempts of one prompt. `Population` describes the methods that callers use.

    texts: accepted and counted texts, in the order of their attempts
    """

    def __init__(self, request: Request, walk: Walk, trie: PathTrie, pool: Pool, first: KVSequence) -> None:
        assert isinstance(request.search, Exact)
        self.request = request
        self.error: Exception | None = None
        self.texts: list[SampledPath] = []
        self._search = request.search
        self._walk = walk
        self._trie = trie
        self._pool = pool
        self._content = first.table.node
        self._readers = PrefixSequences(pool, request.start.prompt, first)
        self._running: list[Attempt] = []
        self._outcomes: dict[int, tuple[SampledPath | None, float]] = {}  # of attempts that wait for earlier ones
        self._started = 0
        self._accepted = 0  # accepted attempts, including those that wait
        self._settled = 0
        self._log_ideal = -math.inf  # log of the number of attempts without a trie that the settled ones stand for
        self._queried: list[PathNode] = []
        self._pilot: Particles | None = None

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The KV sequences that the model reads."""
        return self._readers.sequences if self._pilot is None else self._pilot.readers

    @property
    def done(self) -> bool:
        """True if all texts are found or the prompt has failed."""
        return self.error is not None or len(self.texts) == self._search.n

    def restart(self, first: KVSequence) -> None:
        """Mark all tokens as unread."""
        (self._readers if self._pilot is None else self._pilot).restart(first)

    def ask(self, rows: Mapping[int, int]) -> LogitsQuery:
        """Return the query for the nodes that were read."""
        if self._pilot is not None:
            return self._pilot.ask(rows)
        root = self._trie.root
        nodes = {id(attempt.node): attempt.node for attempt in self._running if attempt.node.ids is None}
        if root.ids is None:
            nodes[id(root)] = root
        self._queried = list(nodes.values())
        paths = [node.path for node in self._queried]
        places = [rows[id(self._readers.of(path.tokens))] for path in paths]
        return LogitsQuery(places, paths, [self._walk.mask(path) for path in paths])

    def answer(self, found: Distribution, first: int) -> list[Draw]:
        """Learn the queried distributions, continue attempts, and begin new ones. Only a pilot returns draws."""
        if self._pilot is not None:
            return self._pilot.answer(found, first)
        self._learn(found, first)
        for attempt in list(self._running):
            self._go_on(attempt)
        self._settle()
        self._begin()
        for node in self._queried:
            if not self._trie.has_room(node):
                node.forget()
        if self.done:
            return []
        if self._trie.root.bound <= 0:
            raise SamplingError(
                f"search=Exact(...): for prompt {self.request.number} the probability of all texts of the constraint "
                "within max_tokens is 0, or too small to represent; inspect what the model prefers with "
                "search=Sample() and diagnostics=True",
                -math.inf,
            )
        if self._running:
            waiting: dict[Tokens, None] = {attempt.node.path.tokens: None for attempt in self._running}
            self._readers.keep(list(waiting), root=True)
        elif self.texts:
            raise self._sampling_error(math.log(len(self.texts)) - self._log_ideal)
        else:
            self._begin_pilot()
        return []

    def take(self, tokens: Sequence[int]) -> None:
        """Pass drawn tokens to the pilot."""
        if self._pilot is not None and not self._pilot.is_fresh:
            self._pilot.take(tokens)
            if self._pilot.done:
                self.error = self._sampling_error(self._pilot.log_z)

    def results(self) -> list[tuple[SampledPath, SampleStatistics]]:
        """Return the texts with their sampling statistics."""
        log_z = math.log(len(self.texts)) - self._log_ideal
        drawn = SampleStatistics(
            log_weight=0.0,
            log_z=min(0.0, log_z),
            ess=float(len(self.texts)),
            acceptance=len(self.texts) / self._settled,
            tokens_read=self._readers.tokens / len(self.texts),
        )
        return [(path, drawn) for path in self.texts]

    def _learn(self, found: Distribution, first: int) -> None:
        """Store the model's distributions in the nodes that were read."""
        size = found.logits.shape[1]
        for row, node in enumerate(self._queried, first):
            if not found.sound[row]:
                raise self._walk.unusable(node.path)
            mask = self._walk.mask(node.path)
            ids = np.arange(size, dtype=np.int32) if mask is None else allowed_ids(mask, size)
            chances = found.probabilities(row, ids)
            node.learn(ids[chances > 0], chances[chances > 0])

    def _go_on(self, attempt: Attempt) -> None:
        """Continue an attempt until it needs the model or ends."""
        while (ids := attempt.node.ids) is not None:
            node, step = attempt.node, len(attempt.node.path.tokens)
            if uniform(attempt.key, step) * attempt.bound >= node.bound:
                return self._end(attempt, None)
            slot = node.choose(uniform(attempt.key, step, 1))
            token = int(ids[slot])
            child = node.children.get(token)
            if child is None:
                child = self._trie.child(node, token, slot, self._walk.after(node.path, token))
            if child.path.finish is not None:
                return self._end(attempt, child.path)
            if child.path.is_dead:
                node.weights[slot] = 0.0
                node.tighten()
                return self._end(attempt, None)
            attempt.node, attempt.bound = child, child.bound
        return None

    def _end(self, attempt: Attempt, path: SampledPath | None) -> None:
        """Record the result of an attempt: a text, or None for a rejection."""
        self._running.remove(attempt)
        self._outcomes[attempt.number] = (path, attempt.first_bound)
        self._accepted += path is not None

    def _settle(self) -> None:
        """Count outcomes in the order of their attempts, up to the first attempt that is still running."""
        while not self.done and self._settled in self._outcomes:
            path, first_bound = self._outcomes.pop(self._settled)
            self._settled += 1
            self._log_ideal = float(np.logaddexp(self._log_ideal, -math.log(first_bound)))
            if path is not None:
                self.texts.append(path)

    def _begin(self) -> None:
        """Begin attempts until enough of them wait for the model. Attempts that need no query end at once."""
        root = self._trie.root
        while not self.done and root.bound > 0 and self._started < self._search.attempts * self._search.n:
            ended = self._settled + len(self._outcomes)
            wanted = math.ceil((self._search.n - self._accepted) * (ended + 1) / (self._accepted + 1))
            if len(self._running) >= min(self._search.parallel, wanted):
                return
            key = row_key(self.request.key, self._started)
            attempt = Attempt(self._started, key, root, root.bound, root.bound)
            self._running.append(attempt)
            self._started += 1
            self._go_on(attempt)
            self._settle()

    def _begin_pilot(self) -> None:
        """Start a particle estimate of the constraint's probability, since no attempt was accepted."""
        search, prompt = self._search, self.request.start.prompt
        self._readers.keep([], root=True)
        root = self._readers.of(())
        cut = self._pool.can_cut
        table = self._pool.fork(root.table, len(prompt) - 1) if cut else self._pool.table(root.table.source)
        if not cut:
            table.node = self._content
        self._readers.keep([], root=False)
        pilot = SMC(search.parallel, **search.random)
        first = KVSequence(table, list(prompt[len(table.tokens) :]))
        self._pilot = Particles(self.request, pilot, self._walk, self._pool, first)

    def _sampling_error(self, log_z: float) -> SamplingError:
        search = self._search
        share = "too small to be estimated" if log_z == -math.inf else f"about {_power(log_z)}"
        return SamplingError(
            f"search=Exact(...): {len(self.texts)} of {search.n} texts after {self._settled:,} attempts at prompt "
            f"{self.request.number}. The probability that the model by itself stays within the constraint and "
            f"max_tokens is {share} (log_z={log_z:.4g}); use search=SMC(64), ask for it in the prompt, or allow more: "
            f"attempts={10 * search.attempts:,}",
            log_z,
        )


def _power(log: float) -> str:
    """Format the exponential of a number with two digits, even if it underflows a float."""
    exponent = math.floor(log / math.log(10))
    return f"{math.exp(log):.2g}" if exponent > -300 else f"{math.exp(log - exponent * math.log(10)):.2g}e{exponent}"
