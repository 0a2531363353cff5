"""The suffix tree against suffixes sorted and compared one by one."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trellm.kernels.suffix.tree import END, build, measure_common, sort_suffixes

TEXTS = st.lists(st.sampled_from([0, 97, 98, 0xC3, END]), max_size=40).map(lambda text: bytes([*text, END]))


def common_prefix(one: bytes, other: bytes) -> bytes:
    """Up to END."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right or left == END:
            return one[:at]
    return one[: min(len(one), len(other))]


@given(TEXTS)
@example(b"a" * 300 + b"\xff")
@example(b"ab" * 99 + b"\xff" + b"ab" * 50 + b"\xff")
@settings(max_examples=200, deadline=None)
def test_suffixes_are_sorted(text: bytes) -> None:
    order = sort_suffixes(np.frombuffer(text, np.uint8), print)
    assert order.dtype == np.int32
    assert order.tolist() == sorted(range(len(text)), key=lambda at: text[at:] + b"\0" * len(text))


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_common_prefixes_end_at_the_end(text: bytes) -> None:
    data = np.frombuffer(text, np.uint8).copy()
    order = sort_suffixes(data, print)
    common = np.empty(len(data), np.int32)
    measure_common(data, order, common)
    for i in range(1, len(text)):
        assert common[i] == len(common_prefix(text[order[i - 1] :], text[order[i] :]))


@given(TEXTS, st.data())
@example(b"abababab\xffabab\xff", None)
@settings(max_examples=200, deadline=None)
def test_the_tree_has_a_node_wherever_suffixes_part(text: bytes, draw: st.DataObject | None) -> None:
    chosen = np.zeros(len(text), np.bool_)
    chosen[draw.draw(st.lists(st.integers(0, len(text) - 1), min_size=1)) if draw else slice(None)] = True
    tree = build(np.frombuffer(text, np.uint8).copy(), chosen, print)
    suffixes = [text[at:].split(b"\xff")[0] for at in tree.starts]
    assert sorted(tree.starts.tolist()) == np.flatnonzero(chosen).tolist()
    # An inner node is a text that two suffixes share and after which they part; the root is always there.
    inner = {common_prefix(one, other) for at, one in enumerate(suffixes) for other in suffixes[:at]} | {b""}
    found = {suffixes[tree.lo[node]][: tree.depth[node]]: node for node in range(len(tree.lo))}
    assert found.keys() == inner and len(found) == len(tree.lo)
    for shared, node in found.items():
        below = [at for at, suffix in enumerate(suffixes) if suffix.startswith(shared)]
        assert below == list(range(tree.lo[node], tree.hi[node]))
        first, last = tree.child_begin[node], tree.child_begin[node + 1]
        assert tree.child_byte[first:last].tolist() == sorted({suffixes[at][len(shared) :][0] for at in below
                                                               if len(suffixes[at]) > len(shared)})  # fmt: skip
        for byte, child in zip(tree.child_byte[first:last].tolist(), tree.child[first:last].tolist(), strict=True):
            members = [at for at in below if suffixes[at].startswith(shared + bytes([byte]))]
            if child < len(tree.lo):
                assert members == list(range(tree.lo[child], tree.hi[child]))
            else:
                assert members == [child - len(tree.lo)]


@pytest.mark.parametrize("text", [b"\xff", b"\xff\xff"])
def test_a_text_without_bytes_has_a_root_only(text: bytes) -> None:
    tree = build(np.frombuffer(text, np.uint8).copy(), np.ones(len(text), np.bool_), print)
    assert len(tree.lo) == 1 and len(tree.child) == 0
