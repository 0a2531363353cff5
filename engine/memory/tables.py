"""Block tables: the tokens that a model has read of a text, and the blocks in which their keys and values lie."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

BLOCK = 16
"""Tokens in a block."""


class BlockTable:
    """The blocks of one text, and its state.

    tokens: that were read, in order
    blocks: int32 numbers of the pool's blocks, token i in block i // BLOCK; the last may have room for further tokens.
        FREED stands for a block that no layer looks at any more
    source: what the model reads it by besides its tokens: what its encoder made of a prompt that is read apart, or the
        number of an adapter; None for neither
    node: the content of all full blocks, a number of the pool's; 0 before the first
    slot: where the state of all tokens lies, for models that keep one; NO_SLOT for others, and before the first token
    shifted: how many of the tokens were looked through for images, and by how much positions behind them are ahead of
        places, for models whose rows of images share positions
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
    """Tokens that are read of one text in a step, behind those of its table, whose blocks have room for them."""

    table: BlockTable
    tokens: Sequence[int]


FREED = -1
NO_SLOT = -1
