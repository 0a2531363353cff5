"""How few tokens spell a text."""

from __future__ import annotations

import numpy as np

from ...kernels.answers import NEVER
from ...kernels.jit.calling import call
from ...kernels.trie.align import shorten
from ..lift.tables import VocabularyTables


def fewest_tokens(text: bytes, tables: VocabularyTables) -> int:
    """The least number of tokens that spell a text; NEVER if they cannot."""
    needed = np.full(len(text) + 1, NEVER, np.int32)
    needed[-1] = 0
    call(shorten, tables.trie, np.frombuffer(text, np.uint8), 1, needed)
    return int(needed[0])
