"""The block pool and state slots: holders, reusable contents, and free memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import torch

from .tables import BLOCK, FREED, NO_SLOT, BlockTable


class Slots:
    """Assignment of state slots to texts.

    count: number of slots. The lowest free slot is taken first, so that used ones are adjacent.
    copies: pairs (from, to) of states to copy before the next step

    The scheduler admits no more texts than there are slots, so one is always free.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.copies: list[tuple[int, int]] = []
        self._holders: list[int] = []  # reference count of each slot that was ever used
        self._free: list[int] = []

    @property
    def held(self) -> int:
        """The number of slots in use."""
        return len(self._holders) - len(self._free)

    def make_writable(self, table: BlockTable) -> None:
        """Give a table its own slot before it reads: a free one, or a copy of its shared one."""
        before = table.slot
        if before != NO_SLOT and self._holders[before] == 1:
            return
        table.slot = self._take()
        if before != NO_SLOT:
            self.copies.append((before, table.slot))
            self._holders[before] -= 1

    def share(self, table: BlockTable) -> None:
        """Count one more holder of a table's slot."""
        if table.slot != NO_SLOT:
            self._holders[table.slot] += 1

    def release(self, table: BlockTable) -> None:
        """Release the slot of a table."""
        slot, table.slot = table.slot, NO_SLOT
        if slot == NO_SLOT:
            return
        self._holders[slot] -= 1
        if self._holders[slot] == 0:
            heappush(self._free, slot)

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless exactly these tables hold slots, and each that has read tokens holds one."""
        held = [0] * len(self._holders)
        for table in tables:
            assert table.slot != NO_SLOT or not table.tokens, "what was read is in a state"
            if table.slot != NO_SLOT:
                held[table.slot] += 1
        assert held == self._holders, "every slot is some table's"
        assert sorted(self._free) == [slot for slot, holders in enumerate(held) if holders == 0], "no slot is lost"
        assert len(held) <= self.count

    def _take(self) -> int:
        if self._free:
            slot = heappop(self._free)
        else:
            slot = len(self._holders)
            assert slot < self.count, "no more texts read than there are slots"
            self._holders.append(0)
        self._holders[slot] = 1
        return slot


_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: Any = None) -> int | None:
    """Return the free bytes of the device, or of main memory; None if the system does not report them."""
    if device is not None and torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(found, default=None)


def _free_of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_of_group() -> int | None:
    """Return the bytes left by a container's limit. The file page cache counts as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - used + int(stat.get("inactive_file", 0))


def shown_size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**28 else f"{count / 2**20:,.1f} MiB"


Content = tuple[int, tuple[int, ...]]
"""The content key of a full block: the node of the prefix before it, and its tokens."""


class BlockPool:
    """Blocks of a model's KV cache. Texts share blocks by reference, for forks and for prefix reuse.

    count: number of blocks; window: attention span of all layers, before which blocks are freed

    A block is *held* by tables, *kept* for its content so that another text may reuse it, or free. Kept blocks are
    evicted least recently used first. A full block is registered by content when a step is planned that fills it, so
    that texts admitted in the same step read a common prefix once.
    copies: pairs (from, to) of blocks to copy before the next step
    slots: state slots of models that keep a state besides the KV cache; None for others. A state cannot be cut back to
        a prefix, so texts of such models share blocks only after a fork.
    """

    def __init__(self, count: int, window: int | None = None, slots: int = 0) -> None:
        self.count = count
        self.copies: list[tuple[int, int]] = []
        self.slots = Slots(slots) if slots else None
        self._filling: set[int] = set()  # registered blocks that the coming step fills
        self._is_early = False
        self._window = window
        self._holders: list[int] = []  # reference count of each block that was ever used
        self._free: list[int] = []
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._by_content: dict[Content, tuple[int, int]] = {}  # node of a content, and a block that holds it
        self._content: dict[int, Content] = {}  # contents of registered blocks
        self._nodes = 0
        self._roots: dict[Any, int] = {}

    @property
    def available(self) -> int:
        """The number of blocks that can be taken now."""
        return self.count - len(self._holders) + len(self._free) + len(self._kept)

    @property
    def held(self) -> int:
        """The number of blocks that tables hold."""
        return self.count - self.available

    @property
    def kept(self) -> int:
        """The number of blocks without holder whose content is registered."""
        return len(self._kept)

    def table(self, source: Any = None, key: Any = None) -> BlockTable:
        """Return an empty table. key: separates texts with equal tokens by salt, adapter or encoder input; None for
        none"""
        if key is None:
            return BlockTable(source)
        if len(self._roots) > _ROOTS:
            self._roots.clear()
        return BlockTable(source, self._roots.setdefault(key, self._new_node()))

    def adopt(self, table: BlockTable, pending: Sequence[int]) -> int:
        """Reuse blocks with the next pending tokens, except the last token. Return the number of tokens taken over."""
        reused = 0
        if len(table.tokens) % BLOCK or self.slots is not None:
            return reused
        while len(pending) - reused > BLOCK:
            tokens = tuple(pending[reused : reused + BLOCK])
            found = self._by_content.get((table.node, tokens))
            if found is None:
                break
            node, block = found
            if self._holders[block] == 0:
                del self._kept[block]
            self._holders[block] += 1
            self._is_early |= block in self._filling
            table.blocks.append(block)
            table.tokens.extend(tokens)
            table.node = node
            reused += BLOCK
        return reused

    def has_slack(self, table: BlockTable, count: int) -> bool:
        """Test whether `count` tokens fit into the table's own last block without filling it. Then `reserve` is not
        needed."""
        last = len(table.tokens) % BLOCK
        return last > 0 and last + count < BLOCK and self._holders[table.blocks[-1]] == 1

    def missing(self, table: BlockTable, count: int) -> int:
        """Return the number of blocks that `reserve` would take for `count` tokens."""
        length = len(table.tokens)
        return -(-(length + count) // BLOCK) - len(table.blocks) + self._is_shared(table)

    def reserve(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Make room for tokens after those of the table. A shared last block is copied.

        `missing` blocks must be available, and the tokens must be read in the next step.
        """
        if self.slots is not None:
            self.slots.make_writable(table)
        if self._is_shared(table):
            block = self._take()
            self.copies.append((table.blocks[-1], block))
            self._release(table.blocks[-1])
            table.blocks[-1] = block
        is_there = self.extend(table, len(table.tokens) + len(tokens))
        assert is_there, "as many blocks as are missing are available"
        if self.slots is None:
            self._filling.update(self.recognise(table, tokens))

    def begin(self) -> bool:
        """Start the planned step. Return True unless a text reuses a prefix that another one only reads in this
        step."""
        is_early, self._is_early = self._is_early, False
        self._filling.clear()
        return not is_early

    def extend(self, table: BlockTable, end: int) -> bool:
        """Take blocks for all tokens before `end`, which are not registered yet. Return False if too few are
        available."""
        for _ in range(len(table.blocks), -(-end // BLOCK)):
            if self.available == 0:
                return False
            table.blocks.append(self._take())
        return True

    def recognise(self, table: BlockTable, tokens: Sequence[int]) -> list[int]:
        """Register the blocks that tokens after those of the table fill. Return the blocks with new contents."""
        begin, end = len(table.tokens), len(table.tokens) + len(tokens)
        new: list[int] = []
        if begin // BLOCK == end // BLOCK:
            return new
        first = begin // BLOCK * BLOCK
        text = [*table.tokens[first:begin], *tokens]
        for start in range(first, end // BLOCK * BLOCK, BLOCK):
            content = (table.node, tuple(text[start - first : start - first + BLOCK]))
            found = self._by_content.get(content)
            if found is None:
                block = table.blocks[start // BLOCK]
                found = self._by_content[content] = self._new_node(), block
                self._content[block] = content
                new.append(block)
            table.node = found[0]
        return new

    def forget(self) -> None:
        """Forget all contents. No table may hold blocks."""
        assert self.held == 0, "what texts have read is theirs until they give it back"
        self._free.extend(self._kept)
        self._kept.clear()
        self._by_content.clear()
        self._content.clear()
        self._roots.clear()

    def shrink(self, table: BlockTable) -> None:
        """Release blocks after the table's tokens."""
        while len(table.blocks) > -(-len(table.tokens) // BLOCK):
            self._release(table.blocks.pop())

    @property
    def can_cut(self) -> bool:
        """True if a fork may be a proper prefix: neither state nor window prevents it."""
        return self.slots is None and self._window is None

    def fork(self, table: BlockTable, length: int | None = None) -> BlockTable:
        """Return another table of the same text, or of its first `length` tokens, fewer than all only if `can_cut`."""
        count = len(table.tokens) if length is None else length
        assert count == len(table.tokens) or (count < len(table.tokens) and self.can_cut)
        twin = BlockTable(table.source, self._node_at(table, count))
        twin.tokens = table.tokens[:count]
        if table.shifted[0] <= count:
            twin.shifted = table.shifted
        twin.blocks = table.blocks[: -(-count // BLOCK)]
        for block in twin.blocks:
            if block != FREED:
                self._holders[block] += 1
        if self.slots is not None:
            twin.slot = table.slot
            self.slots.share(twin)
        return twin

    def trim(self, table: BlockTable) -> None:
        """Free the blocks before the window of the next token."""
        if self._window is None:
            return
        place = (len(table.tokens) - self._window + 1) // BLOCK - 1
        while place >= 0 and table.blocks[place] != FREED:
            self._release(table.blocks[place])
            table.blocks[place] = FREED
            place -= 1

    def release(self, table: BlockTable) -> None:
        """Release all blocks and the slot of a table. Its last blocks will be evicted first."""
        if self.slots is not None:
            self.slots.release(table)
        for block in reversed(table.blocks):
            if block != FREED:
                self._release(block)
        del table.blocks[:]
        table.tokens = []
        table.shifted = 0, 0

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless exactly these tables hold the pool's references."""
        tables = list(tables)
        if self.slots is not None:
            self.slots.check(tables)
        held = [0] * len(self._holders)
        for table in tables:
            assert len(table.blocks) == -(-len(table.tokens) // BLOCK)
            for block in table.blocks:
                if block != FREED:
                    held[block] += 1
            self._check_content(table)
        assert held == self._holders, "every reference is some table's"
        idle = [*self._free, *self._kept]
        assert sorted(idle) == [block for block, holders in enumerate(held) if holders == 0], "no block is lost"
        assert all(self._by_content[content][1] == block for block, content in self._content.items())
        assert len(self._by_content) == len(self._content), "what is known is in a block"

    def _check_content(self, table: BlockTable) -> None:
        """Raise AssertionError unless the registered contents of a table's blocks match its tokens."""
        node = None
        for place, block in enumerate(table.blocks):
            content = self._content.get(block)
            if content is not None:
                assert list(content[1]) == table.tokens[place * BLOCK : (place + 1) * BLOCK], "blocks hold their tokens"
                assert node in (None, content[0]), "and are known by what stands before them"
            node = None if content is None else self._by_content[content][0]

    def _node_at(self, table: BlockTable, count: int) -> int:
        """Return the content node of the full blocks among a table's first `count` tokens; a new one if unknown."""
        place = count // BLOCK
        if place == len(table.tokens) // BLOCK:
            return table.node
        content = self._content.get(table.blocks[place])
        return self._new_node() if content is None else content[0]

    def _is_shared(self, table: BlockTable) -> bool:
        """Test whether further tokens would go into a block that another table holds too."""
        return len(table.tokens) % BLOCK > 0 and self._holders[table.blocks[-1]] > 1

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        elif len(self._holders) < self.count:
            block = len(self._holders)
            self._holders.append(0)
        else:
            block, _ = self._kept.popitem(last=False)
            del self._by_content[self._content.pop(block)]
        self._holders[block] = 1
        return block

    def _release(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block] == 0:
            if block in self._content:
                self._kept[block] = None
            else:
                self._free.append(block)

    def _new_node(self) -> int:
        self._nodes += 1
        return self._nodes


class TokenPool:
    """A replacement of the pool for models without KV cache."""

    count = 0
    available = 1 << 40
    held = 0
    kept = 0
    copies: Sequence[tuple[int, int]] = ()
    slots: Slots | None = None

    def table(self, source: Any = None, key: Any = None) -> BlockTable:
        """Return an empty table."""
        return BlockTable(source)

    def forget(self) -> None:
        """Do nothing: no contents are registered."""

    def adopt(self, table: BlockTable, pending: Sequence[int]) -> int:
        """Return 0: no contents are registered."""
        return 0

    def has_slack(self, table: BlockTable, count: int) -> bool:
        """Return True: there is always room."""
        return True

    def missing(self, table: BlockTable, count: int) -> int:
        """Return 0: there is always room."""
        return 0

    def reserve(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Do nothing."""

    def begin(self) -> bool:
        """Return True: texts share nothing."""
        return True

    can_cut = True

    def fork(self, table: BlockTable, length: int | None = None) -> BlockTable:
        """Return another table of the same text, or of its first `length` tokens."""
        twin = BlockTable(table.source)
        twin.tokens = table.tokens[:length]
        return twin

    def trim(self, table: BlockTable) -> None:
        """Do nothing."""

    def release(self, table: BlockTable) -> None:
        """Forget the text."""
        table.tokens = []


Pool = BlockPool | TokenPool
_ROOTS = 1 << 12
