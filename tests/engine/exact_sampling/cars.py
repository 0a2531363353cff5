"""Constrained adaptive rejection sampling as published, and plain rejection: slow references that count passes.

Source: P. Parys and others, "Constrained Adaptive Rejection Sampling" (arXiv 2510.01902): a trie of prefixes in which
each node has the model's distribution and, for each next token, a bound of the mass of what is legal behind it. A new
node's token is drawn from the distribution as it is, where an illegal one ends the attempt; a known node's by the
bounds. An attempt begins at the prompt, and each of its tokens is a forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Chances = Callable[[Sequence[int]], NDArray[np.float64]]
"""The model's distribution after some tokens, float64 [V]."""


class Node:
    """A prefix: its distribution, the bounds of what is behind each token, and the prefixes that go on from it."""

    def __init__(self, chances: NDArray[np.float64], legal: NDArray[np.bool_]) -> None:
        self.chances = chances
        self.bounds = legal.astype(np.float64)
        self.children: dict[int, Node] = {}


class Attempts:
    """Attempts at texts of a guide within a budget. passes: forward passes behind the prompt so far."""

    def __init__(self, chances: Chances, guide: Any, budget: int, seed: int) -> None:
        self.passes = 0
        self._chances = chances
        self._guide = guide
        self._budget = budget
        self._random = np.random.default_rng(seed)

    def draw(self, most: float = math.inf) -> tuple[int, ...] | None:
        """Attempts, until one comes to a text; None once there were more than `most` passes."""
        while self.passes <= most:
            if (found := self._attempt()) is not None:
                return found
        return None

    def _attempt(self) -> tuple[int, ...] | None:
        raise NotImplementedError


class Cars(Attempts):
    """Attempts at texts of a guide within a budget. passes: forward passes behind the prompt so far."""

    _root: Node | None = None

    def _attempt(self) -> tuple[int, ...] | None:
        tokens: tuple[int, ...] = ()
        state, path, is_new = self._guide.start, list[tuple[Node, int]](), self._root is None
        node = self._root = self._root or self._node(tokens, state)
        while True:
            weights = node.chances if is_new else node.chances * node.bounds
            token = int(self._random.choice(len(weights), p=weights / weights.sum()))
            path.append((node, token))
            if node.bounds[token] == 0:
                return self._end(path, None)
            if token in self._guide.vocabulary.eos_ids:
                return self._end(path, tokens)
            tokens, state = (*tokens, token), self._guide.advance(state, token)
            self.passes += 1
            is_new = token not in node.children
            if is_new:
                node.children[token] = self._node(tokens, state)
            node = node.children[token]

    def _node(self, tokens: tuple[int, ...], state: int) -> Node:
        chances = self._chances(tokens)
        eos = set(self._guide.vocabulary.eos_ids)
        room = len(tokens) < self._budget
        legal = [
            self._guide.is_accepting(state) if token in eos else room and self._guide.advance(state, token) >= 0
            for token in range(len(chances))
        ]
        return Node(chances, np.array(legal))

    def _end(self, path: list[tuple[Node, int]], found: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Learn from an attempt: bounds along its way are what its nodes have left."""
        for (before, token), (node, _) in reversed(list(pairwise(path))):
            before.bounds[token] = (node.chances * node.bounds).sum()
        return found


class Rejection(Attempts):
    """Texts of the model by itself, given up at the first illegal token. passes: as of `Cars`."""

    def _attempt(self) -> tuple[int, ...] | None:
        tokens: tuple[int, ...] = ()
        state = self._guide.start
        while True:
            chances = self._chances(tokens)
            token = int(self._random.choice(len(chances), p=chances))
            if token in self._guide.vocabulary.eos_ids:
                return tokens if self._guide.is_accepting(state) else None
            state = self._guide.advance(state, token)
            if state < 0 or len(tokens) == self._budget:
                return None
            tokens = (*tokens, token)
            self.passes += 1
