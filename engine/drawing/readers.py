"""What the model has read of the texts of one prompt, and how others go on from that."""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.beam_group import common
from ..decode.row import Reader
from ..memory.pool import Pool

Tokens = tuple[int, ...]


class Readers:
    """Readers of one prompt's texts: each of a new one begins with the longest beginning that any of them has read.

    all: those whose memory is held, the prompt's first; tokens: how many tokens behind the prompt have been asked for
    """

    def __init__(self, pool: Pool, prompt: Sequence[int], first: Reader) -> None:
        self._pool = pool
        self._prompt = tuple(prompt)
        self.all = [first]
        self._known: dict[Tokens, Reader] = {(): first}
        self.tokens = 0

    def of(self, tokens: Tokens) -> Reader:
        """The reader of a text behind the prompt."""
        return self._known[tokens]

    def keep(self, wanted: Sequence[Tokens], *, root: bool) -> None:
        """Have a reader of each of the texts and, with `root`, that of the prompt; give up what is not needed.

        All that the readers had to read must have been read, which is what texts begin with from now on.
        """
        before = self._known
        known: dict[Tokens, Reader] = {(): before[()]} if root else {}
        for tokens in wanted:
            if tokens not in known:
                known[tokens] = self._new(tokens)
        kept = {id(reader) for reader in known.values()}
        for reader in before.values():
            if id(reader) not in kept:
                self._pool.release(reader.table)
        self._known = known
        self.all = list(known.values())

    def again(self, first: Reader) -> None:
        """Have everything to read again, what belongs to the first reader in that one's table."""
        fresh = [first, *(Reader(self._pool.table(first.table.source), []) for _ in self.all[1:])]
        for reader, tokens in zip(fresh, self._known, strict=True):
            reader.table.node = first.table.node
            reader.pending = [*self._prompt, *tokens]
        self._known = dict(zip(self._known, fresh, strict=True))
        self.all = fresh

    def _new(self, tokens: Tokens) -> Reader:
        """A reader of a text, whose last token at least is yet to be read."""
        text = [*self._prompt, *tokens]
        lengths = [min(common(reader.table.tokens, text), len(text) - 1) for reader in self.all]
        if not self._pool.can_cut:
            whole = [len(reader.table.tokens) for reader in self.all]
            lengths = [length if length == full else -1 for length, full in zip(lengths, whole, strict=True)]
        length = max(lengths)
        table = self._pool.fork(self.all[lengths.index(length)].table, length)
        self.tokens += min(len(text) - len(table.tokens), len(tokens))
        return Reader(table, text[len(table.tokens) :])
