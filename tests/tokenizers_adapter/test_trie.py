"""The flat trie against a trie of dicts that shares no code with it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer
from trellm.tokenizers_adapter import Trie, Vocabulary, trie

few_bytes = st.binary(max_size=6).map(lambda data: bytes(byte % 3 + 254 * (byte > 200) & 255 for byte in data))
token_lists = st.lists(st.none() | few_bytes | st.binary(max_size=4), max_size=40)


class DictNode:
    """A node with a dict of children and the tokens that end there."""

    def __init__(self) -> None:
        self.children: dict[int, DictNode] = {}
        self.tokens: list[int] = []


def flatten(tokens: list[bytes | None]) -> dict[str, list[int]]:
    """The five arrays, written down during a recursive walk over a trie of dicts."""
    root = DictNode()
    for token, text in enumerate(tokens):
        if text:
            node = root
            for byte in text:
                node = node.children.setdefault(byte, DictNode())
            node.tokens.append(token)
    arrays: dict[str, list[int]] = {"byte": [], "skip": [], "depth": [], "token_start": [], "ids": []}

    def visit(node: DictNode, byte: int, depth: int) -> None:
        here = len(arrays["byte"])
        arrays["byte"].append(byte)
        arrays["depth"].append(depth)
        arrays["skip"].append(0)
        arrays["token_start"].append(len(arrays["ids"]))
        arrays["ids"].extend(node.tokens)
        for child in sorted(node.children):
            visit(node.children[child], child, depth + 1)
        arrays["skip"][here] = len(arrays["byte"])

    visit(root, 0, 0)
    arrays["token_start"].append(len(arrays["ids"]))
    return arrays


@settings(max_examples=300, derandomize=True, deadline=None)
@given(token_lists)
def test_equals_the_trie_of_dicts(tokens: list[bytes | None]) -> None:
    trie = Trie.build(tokens)
    assert {name: array.tolist() for name, array in trie._asdict().items()} == flatten(tokens)
    assert [array.dtype for array in trie] == [np.uint8, np.int32, np.int32, np.int32, np.int32]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(token_lists, few_bytes)
def test_token_ranges_are_the_tokens_with_a_prefix(tokens: list[bytes | None], prefix: bytes) -> None:
    trie = Trie.build(tokens)
    node = 0
    for byte in prefix:
        child, end = node + 1, trie.skip[node]
        while child < end and trie.byte[child] != byte:
            child = int(trie.skip[child])
        node = child if child < end else -1
        if node < 0:
            break
    begins = [t for t, text in enumerate(tokens) if text and text.startswith(prefix)]
    if node < 0:
        assert begins == []
        return
    here, after = trie.token_start[node], trie.token_start[trie.skip[node]]
    assert sorted(trie.ids[here:after].tolist()) == begins
    equal = [t for t, text in enumerate(tokens) if text and text == prefix]
    assert trie.ids[here : trie.token_start[node + 1]].tolist() == equal


def test_a_token_longer_than_the_recursion_limit() -> None:
    long = b"ab" * sys.getrecursionlimit()
    trie = Trie.build([long, None, long[:-1] + b"c", b"b"])
    assert len(trie.byte) == 1 + len(long) + 1 + 1
    assert trie.ids.tolist() == [0, 2, 3]
    assert trie.skip[1] == len(long) + 2
    assert trie.depth[-3:].tolist() == [len(long), len(long), 1]


@pytest.mark.parametrize("name", ["llama3", "mistral-v1"])
def test_real_vocabularies(shared_data: Path, name: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(shared_data / "tokenizers" / name))
    trie = vocabulary.trie
    assert {name: array.tolist() for name, array in trie._asdict().items()} == flatten(vocabulary.tokens)
    assert vocabulary.trie is trie


@settings(max_examples=60, deadline=None)
@given(token_lists)
def test_the_trie_is_the_same_however_deep_it_is(tokens: list[bytes | None]) -> None:
    """What is done for long tokens, done for short ones."""
    patch = pytest.MonkeyPatch()
    usual = Trie.build(tokens)
    try:
        patch.setattr(trie, "DEEP", 1)
        patch.setattr(trie, "MANY_LEVELS", 0)
        deep = Trie.build(tokens)
    finally:
        patch.undo()
    for ours, theirs in zip(usual, deep, strict=True):
        assert np.array_equal(ours, theirs)


def test_tokens_of_very_many_bytes() -> None:
    long = b"ab" * 100_000
    vocabulary = Vocabulary([b"a", b"b", long, long + b"c", long[:-1], None], [5])
    nodes = vocabulary.trie
    assert len(nodes.byte) == len(long) + 3
    assert nodes.depth.max() == len(long) + 1
    for token, text in enumerate(vocabulary.tokens[:5]):
        at = int(np.flatnonzero(nodes.ids == token)[0])
        node = int(np.searchsorted(nodes.token_start, at, side="right")) - 1
        assert nodes.depth[node] == len(text or b"")
