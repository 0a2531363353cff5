"""Block tables: the tokens that were read of a text, and the blocks with their keys and values."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

BLOCK = 16
"""Tokens in a block."""


class BlockTable:
    """The block table of one text.

    tokens: tokens that were read, in order
    blocks: int32 block numbers; token i is in block i // BLOCK. The last block may have room for further tokens. FREED
        replaces a block that no layer needs any more
    source: encoder output of a separate prompt, or the number of an adapter; None for neither
    node: content node of all full blocks, see `BlockPool`; 0 before the first
    slot: state slot, for recurrent models; NO_SLOT for others, and before the first token
    shifted: number of tokens scanned for images, and the offset of positions after them, for models whose image rows
        share positions
    """

    __slots__ = ("blocks", "node", "shifted", "slot", "source", "tokens")

    def __init__(self, source: Any = None, node: int = 0) -> None:
        self.tokens: list[int] = []
        self.blocks = array("i")
        self.source = source
        self.node = node
        self.slot = NO_SLOT
        self.shifted = 0, 0


class Chunk(NamedTuple):
    """Tokens of one text to be read in a step, after those of its table. Its blocks have room for them."""

    table: BlockTable
    tokens: Sequence[int]


FREED = -1
NO_SLOT = -1
