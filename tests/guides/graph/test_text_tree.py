"""The tree of any texts, against the texts themselves."""

import random

import numpy as np
import pytest
from trellm import Limits, Vocabulary
from trellm.errors import LanguageError, LimitError, OptionError
from trellm.guides import ChoiceGuide, laws
from trellm.guides.graph.text_tree import any_text, ordered
from trellm.guides.graph.utf8 import ByteFragment


def texts_of(tree: ByteFragment) -> list[bytes]:
    """Every way through a template, sorted."""
    exits = set(tree.exits.tolist())
    starts = [0, *tree.ends.tolist()]
    found: list[bytes] = []
    todo = [(0, b"")]
    while todo:
        node, text = todo.pop()
        if node < 0:
            found.append(text)
            continue
        if node in exits:
            found.append(text)
        for low, high, target in tree.edges[starts[node] : tree.ends[node]].tolist():
            assert low == high
            todo.append((target, text + bytes([low])))
    return sorted(found)


@pytest.mark.parametrize("alphabet", [b"a", b"ab", b"\0a", b"abcdefgh"])
@pytest.mark.parametrize("longest", [1, 3, 10, 40])
def test_the_tree_has_the_texts_each_once(alphabet: bytes, longest: int) -> None:
    rng = random.Random(longest)
    for count in (1, 2, 5, 50, 2000):
        texts = [bytes(rng.choices(alphabet, k=rng.randint(0, longest))) for _ in range(count)]
        assert texts_of(any_text(texts)) == sorted(set(texts))


@pytest.mark.parametrize("shared", [0, 7, 8, 31, 40])
def test_texts_are_sorted_as_python_sorts_them(shared: int) -> None:
    rng = random.Random(shared)
    texts = [b"x" * shared + bytes(rng.choices(b"\0\1z", k=rng.randint(0, 12))) for _ in range(3000)]
    bounds = np.cumsum([0, *map(len, texts)])
    order = ordered(b"".join(texts), bounds).tolist()
    assert [texts[number] for number in order] == sorted(texts)
    assert sorted(order) == list(range(len(texts)))


def test_choices_beyond_the_limits() -> None:
    words = [f"{number:09}"[::-1] for number in range(50_000)]
    vocabulary = Vocabulary.from_bytes()
    with pytest.raises(LimitError, match="work="):
        ChoiceGuide(words, vocabulary, limits=Limits(work=1_000_000))
    with pytest.raises(LimitError, match="memory="):
        ChoiceGuide(words, vocabulary, limits=Limits(memory=1_000_000))


def test_work_grows_with_the_choices() -> None:
    spent: list[int] = []
    for count in (20_000, 40_000):
        guide = ChoiceGuide([f"{number:09}"[::-1] for number in range(count)], Vocabulary.from_bytes())
        spent.append(guide.automaton.meter.spent)
    assert 0 < spent[1] <= 2.3 * spent[0]


def test_unspellable_choices_among_many() -> None:
    vocabulary = Vocabulary([b"ab", b"c", b"abc", None], [3])
    guide = ChoiceGuide(["abc", "cab", "c", "ababc"], vocabulary)
    laws.check(guide, texts=3, tokens=5)
    with pytest.raises(LanguageError, match=r"'cabac'; the longest beginning that they spell is 'cab'"):
        ChoiceGuide(["abc", "cabac", "b"], vocabulary)


@pytest.mark.parametrize("choices", [None, 3, Vocabulary.from_bytes()])
def test_what_is_no_collection_of_choices(choices: object) -> None:
    with pytest.raises(OptionError, match=r"must be several texts|swapped"):
        ChoiceGuide(choices, Vocabulary.from_bytes())  # type: ignore[arg-type]
