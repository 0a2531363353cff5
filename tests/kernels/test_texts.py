"""Trees of texts, alone and beside an automaton, against walking the texts and the automaton themselves."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.guides.graph.text_tree import WAY_OUT, all_but_texts, beside, text_tree
from trellm.guides.graph.utf8 import ByteFragment

END = 3
# Texts of a, b, c and of the pair xy, with a dot at the end: state 0, inside a pair 1, behind the dot 3.
RUNS = [[(0x2E, 0x2E, END), (0x61, 0x63, 0), (0x78, 0x78, 1)], [(0x79, 0x79, 0)], [], []]
AUTOMATON = beside([[(low, high, WAY_OUT if to == END else to) for low, high, to in runs] for runs in RUNS])

texts = st.lists(st.text("abcxyz", max_size=5).map(lambda text: text.encode() + b"."), min_size=1, max_size=9)


def is_in(template: ByteFragment, text: bytes) -> bool:
    node = 0
    for at, byte in enumerate(text):
        first = template.ends[node - 1] if node else 0
        ways = [to for low, high, to in template.edges[first : template.ends[node]].tolist() if low <= byte <= high]
        assert len(ways) < 2, "deterministic"
        if not ways or ways[0] == WAY_OUT:
            return bool(ways) and at == len(text) - 1
        node = ways[0]
    return False


def reads(text: bytes) -> bool:
    state = 0
    for byte in text:
        state = next((to for low, high, to in RUNS[state] if low <= byte <= high), 2)
    return state == END


@settings(deadline=None)
@given(texts, texts)
def test_a_tree_has_its_texts(listed: list[bytes], others: list[bytes]) -> None:
    tree = text_tree(sorted(set(listed)))
    for text in (*listed, *others, *(other[:-1] for other in others)):
        assert is_in(tree, text) == (text in listed)
    inner = {text[:end] for text in listed for end in range(len(text))}
    assert len(tree.ends) == len(inner)
    assert len(tree.edges) == len(inner | set(listed)) - 1


@settings(deadline=None)
@given(texts, texts)
def test_all_but_the_texts(listed: list[bytes], others: list[bytes]) -> None:
    tree = all_but_texts(sorted(set(listed)), AUTOMATON)
    for text in (*listed, *others, *(other[:-1] for other in others), *(other + b"a" for other in others)):
        assert is_in(tree, text) == (reads(text) and text not in listed)


def test_every_byte_and_many_texts() -> None:
    listed = sorted({f"{number:x}".encode() + bytes((number % 256, 0)) for number in range(256, 5000)})
    tree = text_tree(listed)
    assert all(is_in(tree, text) for text in listed[::37])
    assert np.all(np.diff(tree.ends, prepend=0) >= 1)
    assert not is_in(tree, b"100\xff\x00")
