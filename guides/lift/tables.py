"""Tables computed once per vocabulary and shared by all its guides: trie annotations, masks, slices at loops."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...checks import whole
from ...kernels.chart.ways import TokenBytes
from ...kernels.jit.calling import call
from ...kernels.trie.branches import BELOW, Branches, TokenTrie, annotate
from ...kernels.trie.loop_slice import LoopSlice
from ...kernels.trie.preorder import find_parents, find_reach
from ...kernels.trie.whole_mask import MaskParts
from ...tokenizers_adapter import Trie, Vocabulary
from ..given import vocabulary_of
from ..graph.utf8 import TEXT_BYTES
from ..locks import new_lock
from .mask_table import Cache, Mask, MaskTable
from .slices import Slicing

Loop = tuple[int, int, int]

MAX_SLICES = 32
MIN_LOOP = 24
WALKS_OF_WIDE, WALKS_OF_NARROW = 1, 16


class VocabularyTables:
    """One per vocabulary; fetch it with `VocabularyTables.of`. Guard changes with `lock`."""

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, VocabularyTables]] = weakref.WeakKeyDictionary()
    _known_lock: ClassVar[Any] = new_lock()

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.trie = TokenTrie(*vocabulary.trie, int(vocabulary.trie.depth.max()))
        texts = [text or b"" for text in vocabulary.tokens]
        start = np.zeros(len(texts) + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=start[1:])
        self.bytes = TokenBytes(np.frombuffer(bytearray().join(texts), np.uint8), start)
        self.words = (vocabulary.size + 31) // 32
        self.eos_words = np.zeros(self.words, np.uint32)
        for token in vocabulary.eos_ids:
            self.eos_words[token >> 5] |= np.uint32(1 << (token & 31))
        self.single_bytes = frozenset(text[0] for text in vocabulary.tokens if text is not None and len(text) == 1)
        self.spelled = np.isin(np.arange(256), sorted(self.single_bytes))
        self.spells_all_bytes = self.single_bytes.issuperset(TEXT_BYTES)
        self.masks = MaskTable(self.words)
        self.lock = new_lock()
        self.goals: dict[Any, Any] = {}  # the one used longest ago first; see goals/tokens.py
        self.closing_marks: dict[bytes, Any] = {}  # the first ones go first; see tagged/closed_guide.py
        # How often a loop was walked, until it is divided
        self._slices: OrderedDict[Loop, MaskParts | int] = OrderedDict()
        # What the first masks want is made here, where it does not hold up a text.
        self._slicing = Slicing(self.trie, self.branches, self.branch_numbers, self.parents, self.reach, self.words)
        # With the slice that was wanted last, or one of no loop: most texts need but one
        self.mask_parts = self._parts(self._slicing.none())

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> VocabularyTables:
        """The tables of a vocabulary, made when first asked for. Raises OptionError for what is none."""
        vocabulary = vocabulary_of(vocabulary, "a guide")
        with cls._known_lock:
            tables = cls._known.get(vocabulary)
            if tables is None:
                tables = cls._known[vocabulary] = cls(vocabulary)
            return tables

    def loop_slice(self, loop: Loop, at_once: bool = False) -> LoopSlice | None:
        """The slice of the tokens at a loop; None as `parts_of` has it."""
        parts = self.parts_of(loop, at_once)
        return None if parts is None else parts.loop_slice

    def parts_of(self, loop: Loop, at_once: bool = False) -> MaskParts | None:
        """The parts of masks, with the slice of a loop: `mask_parts` from then on.

        None for a small loop, and at the first calls unless wanted `at_once`: dividing takes as long as some walks, and
        those of loops that only have some ASCII characters are short.
        """
        if loop[0].bit_count() + loop[1].bit_count() < MIN_LOOP:
            return None
        with self.lock:
            known = self._slices.pop(loop, 0)
            if isinstance(known, int):
                soon = not at_once and known < (WALKS_OF_WIDE if loop[2] else WALKS_OF_NARROW)
                known = known + 1 if soon else self._parts(self._slicing.divided(loop))
            self._slices[loop] = known
            if len(self._slices) > MAX_SLICES:
                self._slices.popitem(last=False)
            if not isinstance(known, MaskParts):
                return None
            self.mask_parts = known
            return known

    def _parts(self, loop_slice: LoopSlice) -> MaskParts:
        return MaskParts(self.branches, self.eos_words, loop_slice, MIN_LOOP)

    def pack(self, chosen: NDArray[np.bool_] | bool, root: int = 0) -> NDArray[np.uint32]:
        """A packed mask of the tokens below a node, all or the chosen ones of them in the order of `trie.ids`."""
        flags = np.zeros(32 * self.words, np.bool_)
        flags[self.trie.ids[self.below(root)]] = chosen
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def row_of(self, cache: Cache, key: int, make: Callable[[], Mask]) -> int:
        """The row of `masks` kept under cache[key]; a new one with the mask made where there is none.

        It is made without the lock: a guide may ask another one, which has a lock of its own and waits for this one.
        """
        with self.lock:
            row = self.masks.find(cache, key)
        if row is None:
            mask = make()
            with self.lock:
                row = self.masks.find(cache, key)
                if row is None:
                    row = self.masks.store(cache, key, mask)
        return row

    def node_of(self, node: Any) -> int:
        """A node of `trie` as a plain int. Raises OptionError for anything else."""
        return whole(node, "node", 0, len(self.trie.byte) - 1)

    def branch_of(self, node: int) -> int:
        """The number that a node of `trie` has in `branches`. Raises OptionError for what is no node."""
        return self.branch_numbers.item(self.node_of(node))

    def below(self, root: int) -> slice:
        """The places in `trie.ids` of the tokens below a node: those that begin with its text and are longer.

        Raises OptionError for what is no node.
        """
        trie, root = self.trie, self.node_of(root)
        return slice(trie.token_start.item(root + 1), trie.token_start.item(trie.skip.item(root)))

    @cached_property
    def parents(self) -> NDArray[np.int32]:
        """The parent of each node of `trie`; the root is its own."""
        return parents_of(self.trie)

    @cached_property
    def branches(self) -> Branches:
        """The trie once more, numbered by levels, for walks that look at all children of a node."""
        return branches_of(self.trie)

    @cached_property
    def branch_numbers(self) -> NDArray[np.intp]:
        """The number that each node of `trie` has in `branches`."""
        return np.argsort(by_level(self.trie))

    @cached_property
    def reach(self) -> NDArray[np.int32]:
        """The length of the longest token at or below each node of `trie`."""
        reach = self.trie.depth.copy()
        call(find_reach, self.parents, reach)
        return reach

    @cached_property
    def token_nodes(self) -> NDArray[np.intp]:
        """The node at which each token ends, in the order of the trie."""
        return np.repeat(np.arange(len(self.trie.byte)), np.diff(self.trie.token_start))

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """The places in `trie.ids`, so in the order of bytes, of each token: int32 [V]; 0 for tokens without bytes."""
        places = np.zeros(32 * self.words, np.int32)
        places[self.trie.ids] = np.arange(len(self.trie.ids))
        return places


def by_level(trie: Trie | TokenTrie) -> NDArray[np.intp]:
    """The nodes of a trie in preorder, ordered by levels."""
    return np.argsort(trie.depth, kind="stable")


def parents_of(trie: Trie | TokenTrie) -> NDArray[np.int32]:
    """The parent of each node of a trie in preorder; the root is its own."""
    parents = np.empty(len(trie.depth), np.int32)
    call(find_parents, trie.depth, parents)
    return parents


def branches_of(trie: Trie | TokenTrie) -> Branches:
    """A trie numbered by levels, with what the walks need to know of its nodes."""
    order = by_level(trie)
    below = np.zeros((len(order), BELOW), np.uint64)
    annotate(trie.byte, trie.skip, below)
    children = np.bincount(parents_of(trie)[1:], minlength=len(order))
    first = np.concatenate([[1], 1 + np.cumsum(children[order])])
    start = trie.token_start
    tokens = np.stack([start[:-1], start[1:], start[trie.skip]], axis=1)
    return Branches(
        first.astype(np.int32),
        trie.byte[order],
        trie.ids,
        tokens[order].astype(np.int32),
        below[order],
        int(trie.depth.max()),
    )


def horizon_of(vocabulary: Vocabulary) -> int:
    """The length in bytes of the longest token."""
    return VocabularyTables.of(vocabulary).trie.deepest
