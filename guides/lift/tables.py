"""Tables computed once per vocabulary and shared by all its guides: trie annotations, masks, loop slices.

A slice partitions the tokens by where they leave a set of looping characters.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...checks import check_int
from ...kernels.answers import NEVER
from ...kernels.chart.compaction import TokenBytes
from ...kernels.jit.aliases import Ints
from ...kernels.jit.compiling import call
from ...kernels.trie.align import nodes_along, shorten
from ...kernels.trie.branches import BELOW, Branches, TokenTrie, annotate, find_parents, find_reach, follow_table
from ...kernels.trie.loop_slice import (
    BYTE,
    DEPTH,
    IS_EXIT,
    NEXT,
    NODE,
    LoopSlice,
    divide,
    list_exits,
    list_staying,
    mark_way,
    merge_tails,
)
from ...kernels.trie.whole_mask import MaskParts
from ...tokenizers_adapter import Trie, Vocabulary
from ..arguments import vocabulary_of
from ..cached import LRUCache
from ..graph.utf8 import TEXT_BYTES
from ..locks import new_lock
from .mask_table import Cache, Mask, MaskTable

# Tokens that leave through merged bytes, at most; bytes of few tokens are merged first. With more exits than this, the
# paths to them are not recorded.
MAX_LEAVING = 16_384


class SliceBuilder:
    """Construction of slices from the trie.

    branches: the trie in level order; numbers: the number in `branches` of each node
    parents, reach: int32 [nodes], as in `VocabularyTables`; words: of a mask
    """

    def __init__(
        self, trie: TokenTrie, branches: Branches, numbers: NDArray[np.intp], parents: Ints, reach: Ints, words: int
    ) -> None:
        self._trie = trie
        self._branches = branches
        self._numbers = numbers
        self._parents = parents
        self._reach = reach
        self._words = words

    def empty(self) -> LoopSlice:
        """Return an empty slice, which no state's loop equals."""
        no_ids, loop, row = np.zeros(0, np.int32), np.zeros(3, np.uint64), np.zeros(self._words, np.uint32)
        start, way = np.zeros(257, np.int32), np.zeros((0, DEPTH + 1), np.int32)
        return LoopSlice(
            loop, row, no_ids, no_ids, no_ids, no_ids, no_ids, start, way, *self._tails(no_ids, no_ids, start)
        )

    def divided(self, loop: tuple[int, int, int]) -> LoopSlice:
        """Return the slice of a loop, given as the ASCII characters in two words and the lead bytes."""
        trie, nodes = self._trie, len(self._trie.byte)
        characters = np.array(loop, np.uint64)
        stay_chars, exit_chars = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
        call(divide, trie, characters, stay_chars, exit_chars)
        ids, chars = np.empty(len(trie.ids), np.int32), np.empty(len(trie.ids), np.int32)
        row = np.zeros(self._words, np.uint32)
        staying = call(list_staying, trie, stay_chars, ids, chars, row)
        exits, start = np.empty(nodes, np.int32), np.empty(257, np.int32)
        exits = exits[: call(list_exits, trie, exit_chars, exits, start)].copy()
        exit_node = self._numbers[exits].astype(np.int32)
        return LoopSlice(
            characters,
            row,
            ids[:staying].copy(),
            chars[:staying].copy(),
            exit_node,
            exit_chars[exits],
            self._reach[exits],
            start,
            self._way_to(exits),
            *self._tails(exits, exit_node, start),
        )

    def _way_to(self, exits: Ints) -> Ints:
        """Compute `LoopSlice.way`: every node with an exit at or below it; empty if there are too many exits."""
        trie = self._trie
        flags, is_exit = np.zeros(len(trie.byte), np.bool_), np.zeros(len(trie.byte), np.bool_)
        if len(exits) <= MAX_LEAVING:
            call(mark_way, self._parents, exits, flags.view(np.uint8))
            is_exit[exits] = True
        on_way = np.flatnonzero(flags)
        before = np.zeros(len(flags) + 1, np.int32)
        np.cumsum(flags, dtype=np.int32, out=before[1:])
        way = np.empty((len(on_way), DEPTH + 1), np.int32)
        way[:, NODE] = self._numbers[on_way]
        way[:, NEXT] = before[trie.skip[on_way]]
        way[:, IS_EXIT] = is_exit[on_way]
        way[:, BYTE] = trie.byte[on_way]
        way[:, DEPTH] = trie.depth[on_way]
        return way

    def _tails(self, exits: Ints, exit_node: Ints, start: Ints) -> tuple[Branches, Ints]:
        """Compute `LoopSlice.tails` and `tail_root`, of the bytes with the fewest tokens, up to MAX_LEAVING."""
        trie = self._trie
        leaving = trie.token_start[trie.skip[exits]] - trie.token_start[exits]
        totals = np.diff(np.concatenate([[0], np.cumsum(leaving, dtype=np.int64)])[start])
        order = np.argsort(totals, kind="stable")
        merged = np.zeros(256, np.uint8)
        merged[order[np.cumsum(totals[order]) <= MAX_LEAVING]] = 1
        wanted = exits[merged[trie.byte[exits]] == 1]
        room = 1 + int((trie.skip[wanted] - wanted).sum())
        tails = Branches(
            np.empty(room + 1, np.int32),
            np.empty(room, np.uint8),
            np.empty(int(totals[merged == 1].sum()), np.int32),
            np.empty((room, 3), np.int32),
            np.empty((room, BELOW), np.uint64),
            int((self._reach[wanted] - trie.depth[wanted]).max(initial=-1)) + 1,
        )
        members, bounds = np.empty(room, np.int32), np.empty(room + 1, np.int32)
        count = call(merge_tails, self._branches, exit_node, start, merged, tails, members, bounds)
        tails = replace(
            tails,
            first=tails.first[: count + 1].copy(),
            byte=tails.byte[:count].copy(),
            tokens=tails.tokens[:count].copy(),
            below=tails.below[:count].copy(),
        )
        root = np.full(256, -1, np.int32)
        children = np.arange(1, tails.first.item(1), dtype=np.int32)
        root[tails.byte[children]] = children
        return tails, root


Loop = tuple[int, int, int]

MAX_SLICES = 32
MAX_CACHED, MAX_CACHED_BYTES = 64, 64 << 20
MIN_LOOP = 24
WALKS_OF_WIDE, WALKS_OF_NARROW = 1, 16


class VocabularyTables:
    """The tables of a vocabulary; fetch them with `VocabularyTables.of`. `lock` guards changes."""

    _instances: ClassVar[weakref.WeakKeyDictionary[Vocabulary, VocabularyTables]] = weakref.WeakKeyDictionary()
    _instances_lock: ClassVar[Any] = new_lock()

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
        self._cached: LRUCache[Any] = LRUCache(attrgetter("held_bytes"), MAX_CACHED, MAX_CACHED_BYTES)
        # The slice of a loop, or the number of its walks before it is divided
        self._slices: OrderedDict[Loop, MaskParts | int] = OrderedDict()
        # Computed now, since the first masks need it and a text should not wait.
        self._slicing = SliceBuilder(
            self.trie, self.branches, self.branch_numbers, self.parents, self.reach, self.words
        )
        # With the latest slice, initially the empty one: most texts need a single slice
        self.mask_parts = self._parts(self._slicing.empty())

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> VocabularyTables:
        """Return the cached tables of a vocabulary. Raises OptionError for anything else."""
        vocabulary = vocabulary_of(vocabulary, "a guide")
        with cls._instances_lock:
            tables = cls._instances.get(vocabulary)
            if tables is None:
                tables = cls._instances[vocabulary] = cls(vocabulary)
            return tables

    def loop_slice(self, loop: Loop, at_once: bool = False) -> LoopSlice | None:
        """Return the slice of the tokens at a loop; None as for `parts_of`."""
        parts = self.parts_of(loop, at_once)
        return None if parts is None else parts.loop_slice

    def parts_of(self, loop: Loop, at_once: bool = False) -> MaskParts | None:
        """Return the parts of masks with the slice of a loop, which become `mask_parts`.

        None for a small loop, and for the first calls unless `at_once`: a division takes as long as several walks, and
        loops of ASCII characters only have short walks.
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

    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached value of a key with this vocabulary, or make one, which says its `held_bytes`."""
        with self.lock:
            found = self._cached.get(key)
            return self._cached.add(key, make()) if found is None else found

    def pack(self, chosen: NDArray[np.bool_] | bool, root: int = 0) -> NDArray[np.uint32]:
        """Pack a mask of the tokens below a node: all, or those chosen, bool in the order of `trie.ids`."""
        flags = np.zeros(32 * self.words, np.bool_)
        flags[self.trie.ids[self.below(root)]] = chosen
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def row_of(self, cache: Cache, key: int, make: Callable[[], Mask]) -> int:
        """Return the row of `masks` cached under a key; computed by `make` and stored if there is none.

        `make` runs without the lock: a guide may call another one, whose own lock may be held by a thread waiting for
        this one.
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

    def fewest_tokens(self, text: bytes) -> Ints:
        """Return the fewest tokens that spell the rest of a text from each offset: int32 [len(text) + 1], or NEVER."""
        needed = np.full(len(text) + 1, NEVER, np.int32)
        needed[-1] = 0
        call(shorten, self.trie, np.frombuffer(text, np.uint8), 1, needed)
        return needed

    def along(self, data: NDArray[np.uint8], place: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the tokens that spell data[place:end], with `end`, for all ends that some token reaches or passes."""
        start, nodes = self.trie.token_start, np.empty(min(self.trie.deepest, len(data) - place), np.int32)
        count = call(nodes_along, self.trie, data, place, nodes)
        for end, node in enumerate(nodes[:count].tolist(), place + 1):
            yield end, self.trie.ids[start[node] : start[node + 1]].tolist()

    def follow(self, table: Ints, state: int, root: int = 0) -> Ints:
        """Return the states after the rests of the tokens below a node, in trie order: int32.

        table: the state after each byte, int32 [states, 256], complete
        """
        after = np.empty(len(self.trie.byte), np.int32)
        after[root] = state
        call(follow_table, self.parents, self.trie.byte, table, root + 1, self.trie.skip.item(root), after)
        return after[self.token_nodes[self.below(root)]]

    def node_of(self, node: Any) -> int:
        """Return a node of `trie` as a plain int. Raises OptionError for anything else."""
        return check_int(node, "node", 0, len(self.trie.byte) - 1)

    def branch_of(self, node: int) -> int:
        """Convert a node of `trie` to its number in `branches`. Raises OptionError for anything else."""
        return self.branch_numbers.item(self.node_of(node))

    def below(self, root: int) -> slice:
        """Return the slice of `trie.ids` with the tokens below a node: those that begin with its text and are longer.

        Raises OptionError for anything but a node.
        """
        trie, root = self.trie, self.node_of(root)
        return slice(trie.token_start.item(root + 1), trie.token_start.item(trie.skip.item(root)))

    @cached_property
    def parents(self) -> NDArray[np.int32]:
        """The parent of each node of `trie`: int32 [nodes]; the root is its own."""
        return parents_of(self.trie)

    @cached_property
    def branches(self) -> Branches:
        """The trie in level order, for walks that visit all children of a node."""
        return branches_of(self.trie)

    @cached_property
    def branch_numbers(self) -> NDArray[np.intp]:
        """The number in `branches` of each node of `trie`."""
        return np.argsort(by_level(self.trie))

    @cached_property
    def reach(self) -> NDArray[np.int32]:
        """The length of the longest token at or below each node of `trie`: int32 [nodes]."""
        reach = self.trie.depth.copy()
        call(find_reach, self.parents, reach)
        return reach

    @cached_property
    def token_nodes(self) -> NDArray[np.intp]:
        """The node at which each token ends, in trie order."""
        return np.repeat(np.arange(len(self.trie.byte)), np.diff(self.trie.token_start))

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """The index of each token in `trie.ids` (byte order), 0 for tokens without bytes: int32 [32 * words]."""
        places = np.zeros(32 * self.words, np.int32)
        places[self.trie.ids] = np.arange(len(self.trie.ids))
        return places


def by_level(trie: Trie | TokenTrie) -> NDArray[np.intp]:
    """Return the nodes of a trie in preorder, sorted by level."""
    return np.argsort(trie.depth, kind="stable")


def parents_of(trie: Trie | TokenTrie) -> NDArray[np.int32]:
    """Return the parent of each node of a trie in preorder: int32 [nodes]; the root is its own."""
    parents = np.empty(len(trie.depth), np.int32)
    call(find_parents, trie.depth, parents)
    return parents


def branches_of(trie: Trie | TokenTrie) -> Branches:
    """Number a trie by levels, and annotate its nodes for walks."""
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
    """Return the length in bytes of the longest token."""
    return VocabularyTables.of(vocabulary).trie.deepest
