"""The flat trie against a trie of dicts that shares no code with it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer
from trellm import Vocabulary
from trellm.errors import LimitError
from trellm.tokenizers_adapter import Trie

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


@pytest.mark.parametrize("name", [pytest.param("llama3", marks=pytest.mark.slow), "mistral-v1"])
def test_real_vocabularies(shared_data: Path, name: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(shared_data / "tokenizers" / name))
    trie = vocabulary.trie
    assert {name: array.tolist() for name, array in trie._asdict().items()} == flatten(vocabulary.tokens)
    assert vocabulary.trie is trie


def test_tokens_of_any_length_and_number() -> None:
    """Deep tries are laid out by their texts, wide ones by their levels: both against every beginning, sorted."""
    rng = random.Random(1)
    for _ in range(200):
        tokens = [
            bytes(rng.choices(b"ab", k=rng.randint(0, rng.choice([3, 9, 40])))) for _ in range(rng.randint(1, 30))
        ]
        trie = Trie.build(tokens)
        nodes = sorted({token[:size] for token in tokens for size in range(len(token) + 1)} | {b""})
        assert trie.depth.tolist() == [len(node) for node in nodes]
        for number, node in enumerate(nodes):
            below = [other for other in range(number, len(nodes)) if nodes[other].startswith(node)]
            assert trie.skip[number] == below[-1] + 1


def test_a_token_of_a_million_bytes() -> None:
    """Each byte took a round of NumPy's functions: 12 seconds for this one."""
    long = b"a" * 1_000_000
    trie = Trie.build([long, long[:-1] + b"b", b"b"])
    assert len(trie.byte) == 1_000_003
    assert trie.skip[:2].tolist() == [1_000_003, 1_000_002]


def test_too_many_nodes() -> None:
    tokens = [number.to_bytes(2, "big") + bytes(1000) for number in range(5000)]
    with pytest.raises(LimitError, match="different prefixes"):
        Trie.build(tokens)
