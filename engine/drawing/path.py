"""Texts that are drawn for one prompt: how each goes on, what is known of all as a trie, and their keys and values."""

from __future__ import annotations

import codecs
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelError
from ...guides.protocol import Mask
from ...tokenizers_adapter import Vocabulary
from ..decode.beam_search import common
from ..decode.guide_cache import GuideCache
from ..decode.sequence import KVSequence, Request
from ..memory.pool import Pool
from ..scores import places_of
from ..search import Hypothesis


@dataclass(frozen=True, slots=True, eq=False)
class SampledPath(Hypothesis):
    """A hypothesis that is drawn. is_dead: whether its budget is used up and it is no text of the constraint"""

    is_dead: bool = False

    @property
    def said(self) -> str:
        """Its whole characters."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(self.text)


class Walk:
    """Continuation of the texts of a request.

    A text ends with EOS, of which the model is asked also where nothing else may follow; where it is free but for
    goals, its budget ends it too, provided that the goals are met.
    """

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self.request = request
        self._vocabulary = vocabulary
        self._eos = frozenset(vocabulary.eos_ids)

    def first(self) -> SampledPath:
        """The beginning of all texts."""
        return SampledPath((), b"", self.request.first_state)

    def mask(self, path: SampledPath) -> Mask | None:
        """The tokens that may follow; None if all may.

        Whether the rest would fit into the budget is told here of the last token only, since distances may be more
        than it takes.
        """
        guide_cache, left = self.request.guide_cache(path.state), self.request.left(path)
        if guide_cache is None:
            return None
        if left == 0:
            mask = np.zeros((self._vocabulary.size + 31) // 32, np.uint32)
            for token in self._eos if guide_cache.guide.is_accepting(path.state) else ():
                mask[token >> 5] |= np.uint32(1 << (token & 31))
            return mask
        return guide_cache.mask(path.state, self.request.stop_ids, 1 if left == 1 else None)

    def closing(self, path: SampledPath) -> Mask | None:
        """Of what may follow, the tokens after which the rest surely fits; None where that is no question."""
        guide_cache, left = self.request.guide_cache(path.state), self.request.left(path)
        if guide_cache is None or left < 2 or not guide_cache.tight(path.state, left):
            return None
        return guide_cache.mask(path.state, self.request.stop_ids, left)

    def after(self, path: SampledPath, token: int) -> SampledPath:
        """The text with one more token that may follow."""
        request = self.request
        found = request.extended(path, token, self._vocabulary)
        if found.finish is not None or request.left(found) > 0:
            return found
        behind = request.guide_cache(found.state)
        if behind is not None and not behind.guide.is_accepting(found.state):
            return replace(found, is_dead=True)
        return replace(found, finish="length") if request.may_be_cut else found

    def unusable(self, path: SampledPath) -> ModelError:
        """The error of logits that are no distribution."""
        place = f"step {len(path.tokens)} of prompt {self.request.number}"
        return ModelError(f"the model's logits at {place} are NaN or infinite, or give every token the probability 0")


MOST_WEIGHTS = 1 << 21
"""So much a trie keeps, in probabilities of 20 bytes; what does not fit is asked of the model again."""
A_NODE = 50
"""Probabilities that a node counts as besides, about a kilobyte; its text counts as one for each token."""
MOST_TRIES = 8


class PathNode:
    """A text so far.

    bound: of what is behind it
    ids: int32 [k], the tokens that may follow; None before the model was asked, and where there was no room to keep it
    chances, weights: float64 [k], their probabilities, and these times the bounds behind them
    """

    __slots__ = ("bound", "chances", "children", "ids", "parent", "path", "slot", "weights")

    def __init__(self, path: SampledPath, parent: PathNode | None = None, slot: int = 0) -> None:
        self.path = path
        self.parent = parent
        self.slot = slot
        self.bound = 1.0
        self.ids: NDArray[np.int32] | None = None
        self.chances = self.weights = np.zeros(0)
        self.children: dict[int, PathNode] = {}

    def learn(self, ids: NDArray[np.int32], chances: NDArray[np.float64]) -> None:
        """Have what the model says of the tokens that may follow."""
        self.ids, self.chances, self.weights = ids, chances, chances.copy()
        self.tighten()

    def tighten(self) -> None:
        """Take over what is known behind this node, here and in all before it."""
        node: PathNode | None = self
        while node is not None:
            node.bound = min(node.bound, float(node.weights.sum()))
            if node.parent is not None:
                node.parent.weights[node.slot] = node.parent.chances[node.slot] * node.bound
            node = node.parent

    def choose(self, uniform: float) -> int:
        """The place of a token, as likely as its weight; some weight must be above 0."""
        return places_of(self.weights, np.array([uniform]))[0]

    def forget(self) -> None:
        """Keep nothing but the bound, which is that of the mask's mass; what is behind is known to nobody then."""
        for child in self.children.values():
            child.parent = None
        self.ids = None
        self.chances = self.weights = np.zeros(0)
        self.children = {}


class PathTrie:
    """All nodes that were met: the model's distributions, and bounds of what is left of the constraint.

    A node's bound is no less than the probability that the model, having come so far, ends in a text of the constraint.
    It is 1 before the model was asked there, then the mass of the mask, and falls as bounds behind it do.
    size: what the nodes keep, in probabilities
    """

    def __init__(self, first: SampledPath) -> None:
        self.root = PathNode(first)
        self.size = 0

    def child(self, node: PathNode, token: int, slot: int, path: SampledPath) -> PathNode:
        """A new node behind a token; apart from the trie where there is no room for it."""
        size = A_NODE + len(path.tokens)
        if self.size + size > MOST_WEIGHTS:
            return PathNode(path)
        self.size += size
        found = node.children[token] = PathNode(path, node, slot)
        return found

    def has_room(self, node: PathNode) -> bool:
        """True if what a node has learnt may stay, and is counted; the root's always may."""
        is_apart = node.parent is None or self.size + len(node.chances) > MOST_WEIGHTS
        if is_apart and node is not self.root:
            return False
        self.size += len(node.chances)
        return True


def trie_of(guide_cache: GuideCache, key: Hashable, first: SampledPath) -> PathTrie:
    """The trie of what earlier calls learnt of a prompt under a constraint; of the last few prompts."""
    known = _TRIES.setdefault(guide_cache, OrderedDict())
    found = known.pop(key, None) or PathTrie(first)
    known[key] = found
    while len(known) > MOST_TRIES:
        known.popitem(last=False)
    return found


_TRIES: WeakKeyDictionary[GuideCache, OrderedDict[Hashable, PathTrie]] = WeakKeyDictionary()


Tokens = tuple[int, ...]


class Readers:
    """Readers of one prompt's texts: each of a new one begins with the longest beginning that any of them has read.

    all: those whose memory is held, the prompt's first; tokens: how many tokens behind the prompt have been asked for
    """

    def __init__(self, pool: Pool, prompt: Sequence[int], first: KVSequence) -> None:
        self._pool = pool
        self._prompt = tuple(prompt)
        self.all = [first]
        self._known: dict[Tokens, KVSequence] = {(): first}
        self.tokens = 0

    def of(self, tokens: Tokens) -> KVSequence:
        """The reader of a text behind the prompt."""
        return self._known[tokens]

    def keep(self, wanted: Sequence[Tokens], *, root: bool) -> None:
        """Have a reader of each of the texts and, with `root`, that of the prompt; give up what is not needed.

        All that the readers had to read must have been read, which is what texts begin with from now on.
        """
        before = self._known
        known: dict[Tokens, KVSequence] = {(): before[()]} if root else {}
        for tokens in wanted:
            if tokens not in known:
                known[tokens] = self._new(tokens)
        kept = {id(reader) for reader in known.values()}
        for reader in before.values():
            if id(reader) not in kept:
                self._pool.release(reader.table)
        self._known = known
        self.all = list(known.values())

    def again(self, first: KVSequence) -> None:
        """Have everything to read again, what belongs to the first reader in that one's table."""
        fresh = [first, *(KVSequence(self._pool.table(first.table.source), []) for _ in self.all[1:])]
        for reader, tokens in zip(fresh, self._known, strict=True):
            reader.table.node = first.table.node
            reader.pending = [*self._prompt, *tokens]
        self._known = dict(zip(self._known, fresh, strict=True))
        self.all = fresh

    def _new(self, tokens: Tokens) -> KVSequence:
        """A reader of a text, whose last token at least is yet to be read."""
        text = [*self._prompt, *tokens]
        lengths = [min(common(reader.table.tokens, text), len(text) - 1) for reader in self.all]
        if not self._pool.can_cut:
            whole = [len(reader.table.tokens) for reader in self.all]
            lengths = [length if length == full else -1 for length, full in zip(lengths, whole, strict=True)]
        length = max(lengths)
        table = self._pool.fork(self.all[lengths.index(length)].table, length)
        self.tokens += min(len(text) - len(table.tokens), len(tokens))
        return KVSequence(table, text[len(table.tokens) :])
