"""Slots: the states of texts, one for each, which a fork shares until one of the two reads on."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from .tables import NO_SLOT, BlockTable


class Slots:
    """Which text has its state in which slot.

    count: how many there are. The lowest is taken first, so that those in use lie side by side.
    copies: states that are to be copied, (from, to), before the next step is read
    Whoever lets texts read sees to it that no more of them have begun than there are slots; then one is always free.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.copies: list[tuple[int, int]] = []
        self._holders: list[int] = []  # of each slot that was ever used
        self._free: list[int] = []

    @property
    def held(self) -> int:
        """Number of slots that some table has."""
        return len(self._holders) - len(self._free)

    def own(self, table: BlockTable) -> None:
        """Give a table that is to read a slot that is its own: a free one, or a copy of one that it shares."""
        before = table.slot
        if before != NO_SLOT and self._holders[before] == 1:
            return
        table.slot = self._take()
        if before != NO_SLOT:
            self.copies.append((before, table.slot))
            self._holders[before] -= 1

    def share(self, table: BlockTable) -> None:
        """One more table has the slot of this one, if it has any."""
        if table.slot != NO_SLOT:
            self._holders[table.slot] += 1

    def release(self, table: BlockTable) -> None:
        """Give the slot of a table back."""
        slot, table.slot = table.slot, NO_SLOT
        if slot == NO_SLOT:
            return
        self._holders[slot] -= 1
        if self._holders[slot] == 0:
            heappush(self._free, slot)

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless these tables, and no others, have slots: those that have read anything."""
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
