"""The slices of a vocabulary: how its tokens divide at sets of looping characters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...kernels.jit.aliases import Ints
from ...kernels.jit.calling import call
from ...kernels.trie.branches import BELOW, Branches, TokenTrie
from ...kernels.trie.dividing import divide, list_exits, list_staying, mark_way, merge_tails
from ...kernels.trie.loop_slice import BYTE, DEPTH, IS_EXIT, NEXT, NODE, LoopSlice

# What tokens have behind exits is put together for bytes by which so many leave in all, those of few tokens first; and
# where there are more exits than that the way to them is not noted.
MAX_LEAVING = 16_384


class Slicing:
    """The parts of slices: the trie, in both orders, and the number in `branches` of each node.

    parents, reach: int32 [nodes], as in `VocabularyTables`; words: how many a mask has
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

    def none(self) -> LoopSlice:
        """A slice of no characters, of which no state is a loop."""
        nothing, loop, row = np.zeros(0, np.int32), np.zeros(3, np.uint64), np.zeros(self._words, np.uint32)
        start, way = np.zeros(257, np.int32), np.zeros((0, DEPTH + 1), np.int32)
        return LoopSlice(
            loop, row, nothing, nothing, nothing, nothing, nothing, start, way, *self._tails(nothing, nothing, start)
        )

    def divided(self, loop: tuple[int, int, int]) -> LoopSlice:
        """The slice of a loop, given as the ASCII characters in two words and the lead bytes."""
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
        """`LoopSlice.way`: every node that has an exit at or below it; none of too many."""
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
        """`LoopSlice.tails` and `tail_root`, of as many bytes as have few tokens."""
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
