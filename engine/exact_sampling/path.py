"""Texts drawn for one prompt: their continuation, the trie of known nodes, and their KV sequences."""

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
    """A drawn hypothesis. is_dead: the budget is used up and the text does not meet the constraint"""

    is_dead: bool = False

    @property
    def decoded_text(self) -> str:
        """The text as characters, without an incomplete one at its end."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(self.text)


class Walk:
    """Continuation of the texts of a request.

    A text ends with EOS, which the model has to choose even if nothing else is allowed. A text that is free but for
    goals also ends with its budget, if it meets the goals.
    """

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self.request = request
        self._vocabulary = vocabulary
        self._eos = frozenset(vocabulary.eos_ids)

    def first(self) -> SampledPath:
        """Return the empty text."""
        return SampledPath((), b"", self.request.first_state)

    def mask(self, path: SampledPath) -> Mask | None:
        """Return the tokens that may follow; None for all.

        Only for the last token does the mask take the budget into account, since distances may overestimate the rest.
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
        """Return the allowed tokens after which the rest surely fits; None if the budget is not tight."""
        guide_cache, left = self.request.guide_cache(path.state), self.request.left(path)
        if guide_cache is None or left < 2 or not guide_cache.is_near_budget(path.state, left):
            return None
        return guide_cache.mask(path.state, self.request.stop_ids, left)

    def after(self, path: SampledPath, token: int) -> SampledPath:
        """Return the text extended by an allowed token."""
        request = self.request
        found = request.extended(path, token, self._vocabulary)
        if found.finish is not None or request.left(found) > 0:
            return found
        behind = request.guide_cache(found.state)
        if behind is not None and not behind.guide.is_accepting(found.state):
            return replace(found, is_dead=True)
        return replace(found, finish="length") if request.may_be_cut else found

    def unusable(self, path: SampledPath) -> ModelError:
        """Return the error for logits that are no distribution."""
        place = f"step {len(path.tokens)} of prompt {self.request.number}"
        return ModelError(f"the model's logits at {place} are NaN or infinite, or give every token the probability 0")


MAX_WEIGHTS = 1 << 21
"""Capacity of a trie, in probabilities of 20 bytes each. Nodes beyond it are not kept, and the model is queried
again."""
A_NODE = 50
"""Size of a node besides its probabilities, in probabilities, about a kilobyte. Each token of its text adds one."""
MAX_TRIES = 8


class PathNode:
    """A node of the trie: a partial text.

    bound: upper bound of the probability of an accepted completion
    ids: int32 [k], tokens that may follow; None if the model was not queried, or if they were not kept for lack of room
    chances, weights: float64 [k], their probabilities, and these times the bounds of the children
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
        """Store the model's probabilities of the tokens that may follow."""
        self.ids, self.chances, self.weights = ids, chances, chances.copy()
        self.tighten()

    def tighten(self) -> None:
        """Recompute the bounds of this node and its ancestors."""
        node: PathNode | None = self
        while node is not None:
            node.bound = min(node.bound, float(node.weights.sum()))
            if node.parent is not None:
                node.parent.weights[node.slot] = node.parent.chances[node.slot] * node.bound
            node = node.parent

    def choose(self, uniform: float) -> int:
        """Return the index of a token drawn by weight. Some weight must be above 0."""
        return places_of(self.weights, np.array([uniform]))[0]

    def forget(self) -> None:
        """Drop everything but the bound, which stays that of the mask's mass, and detach the children."""
        for child in self.children.values():
            child.parent = None
        self.ids = None
        self.chances = self.weights = np.zeros(0)
        self.children = {}


class PathTrie:
    """The known nodes of a prompt: the model's distributions, and bounds of the constraint's probability.

    A node's bound is at least the probability that the model ends in a text of the constraint from there. It is 1
    before the model was queried, then the mass of the mask, and falls with the bounds of the children.
    size: size of the nodes, in probabilities
    """

    def __init__(self, first: SampledPath) -> None:
        self.root = PathNode(first)
        self.size = 0

    def child(self, node: PathNode, token: int, slot: int, path: SampledPath) -> PathNode:
        """Return a new child. Without room it is detached from the trie."""
        size = A_NODE + len(path.tokens)
        if self.size + size > MAX_WEIGHTS:
            return PathNode(path)
        self.size += size
        found = node.children[token] = PathNode(path, node, slot)
        return found

    def has_room(self, node: PathNode) -> bool:
        """Test whether the distribution of a node may stay, and account for it. The root's may always stay."""
        is_apart = node.parent is None or self.size + len(node.chances) > MAX_WEIGHTS
        if is_apart and node is not self.root:
            return False
        self.size += len(node.chances)
        return True


def trie_of(guide_cache: GuideCache, key: Hashable, first: SampledPath) -> PathTrie:
    """Return the trie that earlier calls learnt for a prompt under a constraint. The last few prompts are kept."""
    tries = _TRIES.setdefault(guide_cache, OrderedDict())
    found = tries.pop(key, None) or PathTrie(first)
    tries[key] = found
    while len(tries) > MAX_TRIES:
        tries.popitem(last=False)
    return found


_TRIES: WeakKeyDictionary[GuideCache, OrderedDict[Hashable, PathTrie]] = WeakKeyDictionary()


Tokens = tuple[int, ...]


class PrefixSequences:
    """KV sequences of one prompt's texts. A new one forks the sequence with the longest common prefix.

    sequences: sequences whose blocks are held, the prompt's first; tokens: count of tokens read after the prompt
    """

    def __init__(self, pool: Pool, prompt: Sequence[int], first: KVSequence) -> None:
        self._pool = pool
        self._prompt = tuple(prompt)
        self.sequences = [first]
        self._sequences: dict[Tokens, KVSequence] = {(): first}
        self.tokens = 0

    def of(self, tokens: Tokens) -> KVSequence:
        """Return the KV sequence of a text after the prompt."""
        return self._sequences[tokens]

    def keep(self, wanted: Sequence[Tokens], *, root: bool) -> None:
        """Keep one KV sequence for each text, and with `root` that of the prompt. Release all others.

        All pending tokens must have been read: new sequences fork from the present ones.
        """
        before = self._sequences
        sequences: dict[Tokens, KVSequence] = {(): before[()]} if root else {}
        for tokens in wanted:
            if tokens not in sequences:
                sequences[tokens] = self._new(tokens)
        kept_ids = {id(reader) for reader in sequences.values()}
        for reader in before.values():
            if id(reader) not in kept_ids:
                self._pool.release(reader.table)
        self._sequences = sequences
        self.sequences = list(sequences.values())

    def restart(self, first: KVSequence) -> None:
        """Mark all tokens as unread. Tables are new; the first sequence uses the given one."""
        fresh = [first, *(KVSequence(self._pool.table(first.table.source), []) for _ in self.sequences[1:])]
        for reader, tokens in zip(fresh, self._sequences, strict=True):
            reader.table.node = first.table.node
            reader.pending = [*self._prompt, *tokens]
        self._sequences = dict(zip(self._sequences, fresh, strict=True))
        self.sequences = fresh

    def _new(self, tokens: Tokens) -> KVSequence:
        """Return a KV sequence of a text with at least its last token pending."""
        text = [*self._prompt, *tokens]
        lengths = [min(common(reader.table.tokens, text), len(text) - 1) for reader in self.sequences]
        if not self._pool.can_cut:
            read_lengths = [len(reader.table.tokens) for reader in self.sequences]
            lengths = [length if length == full else -1 for length, full in zip(lengths, read_lengths, strict=True)]
        length = max(lengths)
        table = self._pool.fork(self.sequences[lengths.index(length)].table, length)
        self.tokens += min(len(text) - len(table.tokens), len(tokens))
        return KVSequence(table, text[len(table.tokens) :])
