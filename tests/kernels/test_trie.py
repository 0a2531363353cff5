"""Walks along a trie in preorder, against the same said of its texts."""

import numpy as np
import pytest
from trellm.kernels.trie.branches import find_parents, find_reach, follow_table
from trellm.tokenizers_adapter import Trie

TOKENS = [[b"a"], [b"ab", b"abc", b"b", b"bcd", b"abd"], [b"x" * 300, b"x" * 299 + b"y", b"z"]]


def texts_of(trie: Trie) -> list[bytes]:
    """The text of every node."""
    path, texts = bytearray(), []
    for byte, depth in zip(trie.byte.tolist(), trie.depth.tolist(), strict=True):
        path[max(depth - 1, 0) :] = [byte] if depth else []
        texts.append(bytes(path))
    return texts


@pytest.mark.parametrize("tokens", TOKENS, ids=["one", "several", "long"])
def test_parents_and_reach(tokens: list[bytes]) -> None:
    trie = Trie.build(tokens)
    texts = texts_of(trie)
    parents, reach = np.empty(len(texts), np.int32), trie.depth.copy()
    find_parents(trie.depth, parents)
    find_reach(parents, reach)
    assert [texts[parent] for parent in parents] == [text[:-1] for text in texts]
    assert reach.tolist() == [max(len(token) for token in tokens if token.startswith(text)) for text in texts]


def test_states_along_a_trie() -> None:
    trie = Trie.build(TOKENS[1])
    texts, table = texts_of(trie), np.zeros((3, 256), np.int32)
    table[0, ord("a")], table[1, ord("b")], table[2] = 1, 2, 2
    parents, after = np.empty(len(texts), np.int32), np.zeros(len(texts), np.int32)
    find_parents(trie.depth, parents)
    follow_table(parents, trie.byte, table, 1, len(texts), after)
    for text, state in zip(texts, after.tolist(), strict=True):
        expected = 0
        for byte in text:
            expected = int(table[expected, byte])
        assert state == expected
