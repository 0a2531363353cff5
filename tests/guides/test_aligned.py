"""A literal tail in front of any guide: allowed are exactly the tokens that spell the tail and a text of the guide."""

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import AnyOf, Vocabulary
from trellm.errors import LanguageError
from trellm.guides import (
    DEAD,
    AlignedGuide,
    ByteGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    GoalGuide,
    Guide,
    RegexGuide,
    RowGuide,
    laws,
    mask_within,
    tokens_of,
)

from .support import Crossings, Mask, TrieGuide, expected
from .vocabularies import CHARACTERS, PIECEMEAL, SMALL

WIDE = "世".encode()
GREETING = Vocabulary([b"Good", b" mor", b" morning", b" mo", b"r", b"n", b"e", b" ", b"m", b"o", None], [10])


class OnlyBytes:
    """A guide with no more than a ByteGuide must have."""

    def __init__(self, guide: ByteGuide) -> None:
        self.vocabulary, self.start = guide.vocabulary, guide.start
        self.mask, self.advance, self.read = guide.mask, guide.advance, guide.read
        self.is_accepting, self.distance = guide.is_accepting, guide.distance


@pytest.mark.parametrize(
    ("child", "tails"),
    [
        (RegexGuide("[ab]{2,6}cd|b+", SMALL), [b"", b"a", b"aaaa", b"a" * 70, b"\xff"]),
        (RegexGuide("a.{0,9}世", SMALL), [b"a", WIDE[:2], "aé".encode()]),
        (ChoiceGuide(["a", "界", "é世", ""], SMALL), [WIDE, "aé".encode()]),
        (FreeGuide(SMALL), [b"ab", WIDE[:1]]),
        (GoalGuide(FreeGuide(SMALL), ["aab", "é"]), [b"a", b"b"]),
        (GoalGuide(RegexGuide("[ab]{2,6}cd|b+", SMALL), [AnyOf("bab", "bb")]), [b"aa"]),
        (RegexGuide("[01]+|[é世\n]{2,}", CHARACTERS), [b"", b"a", "世".encode(), b"0\n"]),
        (CFGGuide('start: "a" start "a" | "b" start "b" | "a" | "b" |', PIECEMEAL), [b"a", b"aab", b"b"]),
        (OnlyBytes(RegexGuide("[ab]{2,6}cd|b+", SMALL)), [b"a"]),
        (OnlyBytes(CFGGuide('start: "a" start "a" | "b" start "b" | "a" | "b" |', PIECEMEAL)), [b"b"]),
    ],
    ids=[
        "pattern",
        "characters",
        "choices",
        "free",
        "goals",
        "pattern and goals",
        "no bytes",
        "pieces",
        "plain",
        "plain pieces",
    ],
)
def test_laws(child: ByteGuide, tails: list[bytes]) -> None:
    for tail in tails:
        laws.check(AlignedGuide(child, tail), texts=1, tokens=6)


def spellings(vocabulary: Vocabulary, text: bytes) -> Iterator[tuple[int, ...]]:
    """All token sequences with the bytes `text`, by trying every token everywhere."""
    if not text:
        yield ()
    for token, piece in enumerate(vocabulary.tokens):
        if piece and text.startswith(piece):
            for rest in spellings(vocabulary, text[len(piece) :]):
                yield (token, *rest)


def sequences(guide: Guide, state: int, longest: int) -> Iterator[tuple[int, ...]]:
    """All token sequences that a guide allows to a complete text, of at most `longest` tokens."""
    if guide.is_accepting(state):
        yield ()
    for token in tokens_of(guide.mask(state)) if longest else ():
        if token not in guide.vocabulary.eos_ids:
            for rest in sequences(guide, guide.advance(state, token), longest - 1):
                yield (token, *rest)


def texts_of(vocabulary: Vocabulary, mask: Mask) -> set[bytes | None]:
    return {vocabulary.tokens[token] for token in tokens_of(mask)}


TOKENS = st.lists(st.binary(min_size=1, max_size=3).map(lambda data: bytes(97 + byte % 3 for byte in data)), max_size=8)
TEXTS = st.text("abc", max_size=3)


@settings(max_examples=15, deadline=None)
@given(TOKENS, st.booleans(), TEXTS, st.sets(TEXTS, min_size=1, max_size=4))
def test_the_sequences_allowed_are_the_enumerated_ones(
    tokens: list[bytes], with_bytes: bool, tail: str, texts: set[str]
) -> None:
    vocabulary = Vocabulary(
        [*tokens, *([b"a", b"b", b"c"] if with_bytes else []), None], [len(tokens) + 3 * with_bytes]
    )
    expected = {way for text in texts for way in spellings(vocabulary, (tail + text).encode())}
    try:
        child = RegexGuide("|".join(sorted(texts)), vocabulary)
        guide = AlignedGuide(child, tail.encode())
    except LanguageError:
        # The child's own texts must be spellable too: a guide that is not is refused before it is aligned.
        assert not expected or not any(True for text in texts for _ in spellings(vocabulary, text.encode()))
        return
    assert set(sequences(guide, guide.start, 7)) == expected
    assert guide.distance(guide.start) >= min(map(len, expected))


def test_a_token_that_only_exists_across_the_boundary() -> None:
    """The case of "Good mor": a token " morning", but none to spell "ning"."""
    free = AlignedGuide(FreeGuide(GREETING), b" mor")
    assert [GREETING.tokens[token] for token in tokens_of(free.mask(free.start))] == [
        b" mor",
        b" morning",
        b" mo",
        b" ",
    ]
    words = RegexGuide("(ning|e)!?", Vocabulary([*GREETING.tokens[:-1], b"!", None], [11]))
    guide = AlignedGuide(words, b" mor")
    token = words.vocabulary.tokens.index(b" morning")
    after = guide.advance(guide.start, token)
    assert guide.is_accepting(after)
    assert after == guide.read(guide.start, b" morning") == len(b" mor") + words.read(words.start, b"ning")
    assert guide.distance(guide.start) == 1 and tokens_of(mask_within(guide, guide.start, 1)) == [token]


def test_behind_the_boundary_the_masks_are_the_childs() -> None:
    child = RegexGuide("[ab]{2,6}cd|b+", SMALL)
    guide = AlignedGuide(child, b"xa")
    state = guide.read(guide.start, b"xabab")
    inner = child.read(child.start, b"bab")
    assert state == inner + 2 and guide.row(state) == child.row(inner) and guide.table is child.table
    assert np.shares_memory(guide.mask(state), child.mask(inner))
    assert np.array_equal(guide.mask_within(state, 2), child.mask_within(inner, 2))


def test_what_a_guide_knows_below_a_node_is_what_reading_says() -> None:
    children = (
        RegexGuide("[ab]{2,6}cd|b+|.é{1,3}", SMALL),
        FreeGuide(SMALL),
        RegexGuide("a*|b{3}", PIECEMEAL),
        GoalGuide(RegexGuide("[ab]{2,6}(cd)?|b+", SMALL), ["bab"]),
        GoalGuide(FreeGuide(SMALL), ["bab", "aa"]),
    )
    for child in children:
        assert isinstance(child, TrieGuide) and not isinstance(OnlyBytes(child), TrieGuide)
        for tail in (b"a", b"ab", b"aa", b"baba"):
            quick, slow = AlignedGuide(child, tail), AlignedGuide(OnlyBytes(child), tail)
            for place, left in product(range(len(tail)), (1, 2, 3, 9)):
                assert np.array_equal(quick.mask(place), slow.mask(place))
                assert np.array_equal(quick.mask_within(place, left), slow.mask_within(place, left))
                assert quick.distance(place) == slow.distance(place)


def test_tokens_of_the_tail_need_not_count() -> None:
    child = RegexGuide("ba{4}", SMALL)  # "b" and "aaaa", or "ba" and "aaa"
    guide = AlignedGuide(child, b"xxxa", counts_tail=False)
    assert child.distance(child.start) == 2
    assert [guide.distance(place) for place in range(4)] == [2, 2, 2, 2]
    assert not guide.fits(guide.start, 1) and guide.fits(guide.start, 2)
    assert texts_of(SMALL, guide.mask_within(0, 2)) == {b"x"}
    assert tokens_of(guide.mask_within(3, 1)) == []
    assert texts_of(SMALL, guide.mask_within(3, 2)) == {b"a", b"ab", b"aba"}


def test_what_cannot_be_spelt_is_refused() -> None:
    with pytest.raises(LanguageError, match=r"no tokens that spell b'\\xe4\\xb8' and then a text"):
        AlignedGuide(RegexGuide("[01]+", CHARACTERS), WIDE[:2])
    guide = AlignedGuide(RegexGuide("[01]+", CHARACTERS), b"")
    assert guide.start == guide.child.start


def test_it_says_what_it_expects() -> None:
    guide = AlignedGuide(RegexGuide("[01]+", SMALL), b"ab")
    assert expected(guide, guide.start) == '"ab", then "0" or "1"'
    assert expected(guide, guide.read(guide.start, b"ab0")) == expected(guide.child, guide.child.read(0, b"0"))


@pytest.mark.parametrize("tail", [b" ", b" mor", b"\n\n", '"é'.encode()[:2]])
def test_a_large_vocabulary(llama3: Vocabulary, tail: bytes) -> None:
    """Masks are right token by token; a single space has tens of thousands that cross."""
    child = RegexGuide(r'[^"\\\n]{0,40}|\d+', llama3)
    guide = AlignedGuide(child, tail)
    assert isinstance(guide, RowGuide)
    allowed = set(tokens_of(guide.mask(guide.start)))
    random = Random(0)
    near = [
        token for token, text in enumerate(llama3.tokens) if text and (text.startswith(tail) or tail.startswith(text))
    ]
    for token in [*random.sample(near, min(300, len(near))), *random.sample(range(llama3.size), 300)]:
        text = llama3.tokens[token] or b"\x00"
        crosses = text.startswith(tail) and child.read(child.start, text[len(tail) :]) != DEAD
        assert (token in allowed) == (crosses or tail.startswith(text))
    assert allowed <= set(near)


@settings(max_examples=20, deadline=None)
@given(TOKENS, st.lists(st.integers(0, 10), max_size=9), st.sampled_from(["a*", "(b|ca)", "[ab]c?"]))
def test_prompts_are_cut_at_the_last_boundary_that_no_token_crosses(
    tokens: list[bytes], prompt: list[int], pattern: str
) -> None:
    tokens = [*tokens, b"a", b"b", b"c"]
    vocabulary = Vocabulary([*tokens, None], [len(tokens)])
    ids = [token % vocabulary.size for token in prompt]
    child = RegexGuide(pattern, vocabulary)
    texts = {text for count in range(4) for text in map(bytes, product(b"abc", repeat=count))}
    begun = {text for text in texts if child.read(child.start, text) != DEAD}

    def is_crossed(boundary: int) -> bool:
        """Whether a token begins before the boundary and goes beyond the end."""
        kept, cut = vocabulary.decode(ids[special:boundary]), vocabulary.decode(ids[boundary:])
        befores = {kept[len(kept) - count :] for count in range(1, min(3, len(kept)) + 1)}
        return any(before + cut + after in tokens for before in befores for after in begun if after)

    special = max((place + 1 for place, token in enumerate(ids) if token == len(tokens)), default=0)
    uncrossed = [boundary for boundary in range(special + 1, len(ids) + 1) if not is_crossed(boundary)]
    assert Crossings(child).cut(ids) == max(uncrossed, default=special)


def test_a_token_that_begins_inside_another_crosses_too() -> None:
    vocabulary = Vocabulary([b"(", b"m", b"o", b"(m", b"morning", b"x", None], [6])
    free = Crossings(FreeGuide(vocabulary))
    assert free.cut([5, 3, 2]) == 1  # to "x", so that "(" and "morning" may follow
    assert free.cut([5, 6, 3, 2]) == 2 and free.cut([5, 6]) == 2 and free.cut([]) == 0
    assert Crossings(RegexGuide("x+", vocabulary)).cut([5, 3, 2]) == 3
