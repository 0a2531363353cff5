"""The pool: every block is somebody's or nobody's, and holds what its texts say."""

from __future__ import annotations

import random

import pytest

from ..paged import Blocks
from ..support import BLOCK, FREED, BlockPool, BlockTable, Chunk


class Texts:
    """Texts in a pool, each as long as it should be, and the memory that a model would write."""

    def __init__(self, count: int, window: int | None = None, slots: int = 0) -> None:
        self.pool = BlockPool(count, window, slots)
        self.memory = Blocks()
        self.tables: list[BlockTable] = []
        self.window = window

    def read(self, table: BlockTable, tokens: list[int]) -> bool:
        """Read some tokens; False where there is no room for them."""
        if not self.pool.has_slack(table, len(tokens)):
            if self.pool.missing(table, len(tokens)) > self.pool.available:
                return False
            self.pool.reserve(table, tokens)
        self.memory.copy([(a, b) for b, a in {b: a for a, b in self.pool.copies}.items()])
        self.pool.copies = []
        if self.pool.slots is not None:
            self.memory.copy_states(self.pool.slots.copies)
            self.pool.slots.copies = []
            self.memory.states.read(Chunk(table, tokens))
        for place, token in enumerate(tokens, len(table.tokens)):
            self.memory.places[table.blocks[place // BLOCK]][place % BLOCK] = token
        table.tokens += tokens
        self.pool.trim(table)
        return True

    def check(self) -> None:
        """What every text's blocks hold, and that all are accounted for."""
        self.pool.check(self.tables)
        for table in self.tables:
            if self.pool.slots is not None:
                assert self.memory.states.texts[table.slot] == tuple(table.tokens)
            seen = 0 if self.window is None else max(0, len(table.tokens) + 1 - self.window)
            for place, token in enumerate(table.tokens):
                block = table.blocks[place // BLOCK]
                assert (block == FREED and place < seen) or self.memory.places[block][place % BLOCK] == token


@pytest.mark.parametrize(("window", "slots"), [(None, 0), (1, 0), (20, 0), (40, 0), (None, 8), (20, 8)])
@pytest.mark.parametrize("seed", range(12))
def test_any_history_leaves_every_block_and_state_where_it_belongs(seed: int, window: int | None, slots: int) -> None:
    pick = random.Random(seed)
    texts = Texts(pick.choice([6, 20, 60]), window, slots)
    adopted = refused = 0
    for _ in range(400):
        match pick.choice(["new", "read", "read", "read", "fork", "release"]):
            case "new" if len(texts.tables) < 8:
                table = texts.pool.table()
                # Few tokens, so that texts often begin alike.
                prompt = [pick.randrange(2) if pick.random() < 0.02 else 0 for _ in range(pick.randint(1, 70))]
                taken = texts.pool.adopt(table, prompt)
                assert taken < len(prompt) and taken % BLOCK == 0
                adopted += taken
                texts.tables.append(table)
                if not texts.read(table, prompt[taken:]):
                    refused += 1
                    texts.pool.release(table)
                    texts.tables.remove(table)
            case "read" if texts.tables:
                table = pick.choice(texts.tables)
                refused += not texts.read(table, [pick.randrange(3) for _ in range(pick.choice([1, 1, 2, 17]))])
            case "fork" if texts.tables and len(texts.tables) < 8:
                texts.tables.append(texts.pool.fork(pick.choice(texts.tables)))
            case "release" if texts.tables:
                texts.pool.release(texts.tables.pop(pick.randrange(len(texts.tables))))
            case _:
                continue
        texts.check()
    assert (adopted > 0) == (slots == 0), "a state cannot be cut off behind a beginning"
    assert refused or texts.pool.count > 6
    for table in texts.tables:
        texts.pool.release(table)
    texts.tables.clear()
    texts.check()
    assert texts.pool.held == 0


def test_a_fork_costs_references_and_a_block_once_it_goes_on() -> None:
    texts = Texts(20)
    first = texts.pool.table()
    texts.read(first, [1] * 40)
    assert texts.pool.held == 3
    forks = [texts.pool.fork(first) for _ in range(5)]
    assert texts.pool.held == 3
    for number, fork in enumerate(forks):
        texts.read(fork, [number])
    texts.tables = [first, *forks]
    texts.check()
    assert texts.pool.held == 3 + 5, "what they share is there once"


def test_equal_beginnings_are_found_again_unless_what_was_read_apart_differs() -> None:
    texts = Texts(20)
    first = texts.pool.table("source", key=(1, 2))
    texts.read(first, list(range(50)))
    texts.pool.release(first)
    assert texts.pool.held == 0
    assert texts.pool.adopt(texts.pool.table("source", key=(1, 2)), list(range(50))) == 48
    assert texts.pool.adopt(texts.pool.table("other", key=(3,)), list(range(50))) == 0
    assert texts.pool.adopt(texts.pool.table(), list(range(50))) == 0
    assert texts.pool.adopt(texts.pool.table("source", key=(1, 2)), list(range(48))) == 32, "the last token is read"


def test_the_least_recently_used_are_forgotten_first() -> None:
    texts = Texts(6)
    for begin in (0, 100):
        table = texts.pool.table()
        texts.read(table, list(range(begin, begin + 33)))
        texts.pool.release(table)
    again = texts.pool.table()
    assert texts.pool.adopt(again, list(range(33))) == 32
    texts.pool.release(again)
    large = texts.pool.table()
    texts.read(large, list(range(200, 256)))  # takes the two free blocks, and two of those that are kept
    assert texts.pool.adopt(texts.pool.table(), list(range(100, 133))) == 0
    assert texts.pool.adopt(texts.pool.table(), list(range(33))) == 32
