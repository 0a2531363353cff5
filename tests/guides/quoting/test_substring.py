"""Quotations: exactly the pieces of the context, found where they stand."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Limits, Vocabulary
from trellm.errors import LanguageError, LimitError, OptionError
from trellm.guides import DEAD, ByteGuide, Guide, RowGuide, SubstringGuide, laws, tokens_of

from ..support import Crossings, Meter, Occurrence, TrieGuide
from ..vocabularies import BYTES, CHARACTERS, LONG, PIECEMEAL, SMALL
from .naive_quoting import distances, quotations

NODULES = "the size of the nodule is 4mm and the location of the nodule is lungs.\nthe nodule looks bad."
UNICODE = "aba é世 é世界 ab. aaa!\n\n🙂 abab é  a  aaa\nab"
PLAIN = Vocabulary.from_bytes()
RULES: list[dict[str, Any]] = [
    {},
    {"min_chars": 4},
    {"max_chars": 6},
    {"min_chars": 3, "max_chars": 7, "whitespace": "collapsed"},
    {"whitespace": "collapsed"},
]


def outputs(guide: Guide) -> list[bytes]:
    """All texts of the guide, by its masks: every sequence of tokens up to EOS; a text for each."""
    found: list[bytes] = []
    open_ones = [(guide.start, b"")]
    while open_ones:
        state, text = open_ones.pop()
        for token in tokens_of(guide.mask(state).copy()):
            if token in guide.vocabulary.eos_ids:
                found.append(text)
            else:
                open_ones.append((guide.advance(state, token), text + (guide.vocabulary.tokens[token] or b"")))
    return found


@pytest.mark.parametrize("boundary", ["word", "character", "sentence", "line"])
@pytest.mark.parametrize("options", RULES, ids=str)
@pytest.mark.parametrize(
    "documents", [[UNICODE], ["ab a", "", "é ab a.b", "ab a"], ["aaaaaaa"], [NODULES[50:]]], ids=len
)
def test_every_output_is_a_quotation_and_every_quotation_an_output(
    documents: list[str], options: dict[str, Any], boundary: Any
) -> None:
    collapsed = options.get("whitespace") == "collapsed"
    limits = {name: value for name, value in options.items() if name != "whitespace"}
    expected = quotations(documents, boundary, **limits, collapsed=collapsed)
    if not expected:
        with pytest.raises(LanguageError, match="min_chars"):
            SubstringGuide(documents, PLAIN, boundary=boundary, **options)
        return
    guide = SubstringGuide(documents, PLAIN, boundary=boundary, **options)
    found = outputs(guide)
    assert len(found) == len(set(found))
    assert {text.decode() for text in found} == expected.keys()
    for text, places in expected.items():
        assert guide.places(text) == places
        span = guide.span(text)
        assert span is not None and span.occurrences[0] == (span.document, span.start, span.end)
        assert documents[span.document][span.start : span.end] == span.text
        if not collapsed:
            assert span.text == text and documents[span.document].find(text) <= span.start


PARTS = st.sampled_from(["ab", "a", "b", " ", "\n", ". ", "é", "世", "ba", "aa", "  "])


@given(
    st.lists(st.lists(PARTS, max_size=9).map("".join), min_size=1, max_size=3),
    st.sampled_from(["word", "character", "sentence", "line"]),
    st.integers(1, 5),
    st.none() | st.integers(5, 9),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_language_and_its_distances(
    documents: list[str], boundary: Any, min_chars: int, max_chars: int | None, collapsed: bool
) -> None:
    expected = quotations(documents, boundary, min_chars, max_chars, collapsed)
    whitespace: Any = "collapsed" if collapsed else "exact"
    options: dict[str, Any] = dict(boundary=boundary, min_chars=min_chars, max_chars=max_chars, whitespace=whitespace)
    spelt = distances([text.encode() for text in expected], PIECEMEAL)
    if spelt.get(b"", 10**6) >= 10**6:
        with pytest.raises(LanguageError):
            SubstringGuide(documents, PIECEMEAL, **options)
    if not expected:
        with pytest.raises(LanguageError):
            SubstringGuide(documents, SMALL, **options)
        return
    for vocabulary in (SMALL, PIECEMEAL) if spelt[b""] < 10**6 else (SMALL,):
        guide = SubstringGuide(documents, vocabulary, **options)
        for begun, distance in distances([text.encode() for text in expected], vocabulary).items():
            state = guide.read(guide.start, begun)
            assert (state == DEAD) == (distance >= 10**6)
            if state != DEAD:
                assert guide.distance(state) == distance
        if vocabulary is PIECEMEAL:
            assert set(outputs(guide)) <= {text.encode() for text in expected}


@pytest.mark.parametrize(
    ("boundary", "options"),
    [
        pytest.param(boundary, options, id=f"{boundary}-{options}", marks=[] if place == number else pytest.mark.slow)
        for place, boundary in enumerate(["word", "character", "sentence", "line"])
        for number, options in enumerate([{"min_chars": 4}, {}, {"none_text": "aba nix"}, {"max_chars": 99}])
    ],
)
def test_the_laws(boundary: Any, options: dict[str, Any]) -> None:
    contexts = {SMALL: f"{UNICODE} {NODULES}", LONG: NODULES, CHARACTERS: "ab 01 é世\n\nab 10 世界 ab"}
    for vocabulary, context in contexts.items():

        def make(context: str = context, vocabulary: Vocabulary = vocabulary) -> SubstringGuide:
            return SubstringGuide(context, vocabulary, boundary=boundary, **options)

        guide = make()
        assert isinstance(guide, RowGuide) and isinstance(guide, ByteGuide)
        laws.check(guide, texts=3, tokens=7)
        laws.does_not_remember(make, texts=2, tokens=5)


def test_the_laws_where_only_some_occurrences_are_looked_at() -> None:
    text = " ".join(Random(1).choices(["ab", "aba", "abc", "a", "a-a", "2024", "z."], k=3000))
    laws.check(SubstringGuide(text, SMALL, min_chars=5, max_chars=30), texts=2, tokens=8)
    laws.check(SubstringGuide(text, SMALL), texts=2, tokens=8)


def test_a_large_vocabulary(llama3: Vocabulary, shared_data: Any) -> None:
    text = (shared_data / "text" / "moby_dick.txt").read_text(encoding="utf-8")[200_000:260_000]
    guide = SubstringGuide(text, llama3)
    laws.check(guide, texts=2, tokens=8, sample=60)
    random = Random(2)
    state, data = guide.start, b""
    for _ in range(30):
        token = random.choice(tokens_of(guide.mask(state)))
        if token in llama3.eos_ids:
            break
        state, data = guide.advance(state, token), data + (llama3.tokens[token] or b"")
        assert data in text.encode()


@pytest.mark.parametrize("options", [{}, {"min_chars": 4, "max_chars": 30}], ids=str)
def test_what_tokens_lead_to_below_a_node_of_the_trie(options: dict[str, Any]) -> None:
    guide = SubstringGuide(f"{UNICODE} aba", SMALL, **options)
    assert isinstance(guide, TrieGuide)
    reading, slow = guide, Crossings(guide)
    slow._below = None
    trie = SMALL.trie
    for node in [node for node in range(len(trie.byte)) if trie.skip[node] > node + 1][:60]:
        for left in (None, 1, 2, 5):
            assert guide.mask_below(guide.start, node, left).tolist() == slow.mask_within(node, left).tolist()
        assert reading.distance_below(guide.start, node) == slow.distance(node)


def test_equal_ends_are_equal_states() -> None:
    guide = SubstringGuide(NODULES, SMALL)
    states = {
        guide.read(guide.start, text) for text in (b"location of", b"the location of", b"4mm and the location of")
    }
    assert len(states) == 1


def test_the_words_of_the_blog() -> None:
    """After "the" come size, nodule and location; after "the nodule", is and looks."""
    guide = SubstringGuide(NODULES, Vocabulary.from_characters(re.findall(r"\n?\w+| \w+|\.", NODULES)))
    after = guide.read(guide.start, b"the")
    words = lambda state: {guide.vocabulary.tokens[token] for token in tokens_of(guide.mask(state))}  # noqa: E731
    assert words(after) == {b" size", b" nodule", b" location", None}
    assert words(guide.read(after, b" nodule")) == {b" is", b" looks", None}


def test_a_refusal_is_one_more_text() -> None:
    guide = SubstringGuide("the nodule is in the lungs", PLAIN, none_text="the nodule is not there")
    assert {b"the nodule is not there", b"lungs", b"the nodule"} <= set(outputs(guide))
    assert b"not" not in outputs(guide) and b"the nodule is not" not in outputs(guide)
    assert guide.span("the nodule is not there") is None and guide.places("the nodule is not there") == []
    in_context = SubstringGuide("the nodule is in the lungs", PLAIN, none_text="the nodule")
    assert in_context.span("the nodule") is None and in_context.span("nodule") is not None


@pytest.mark.parametrize("options", [{}, {"max_chars": 9}, {"whitespace": "collapsed"}], ids=str)
def test_taken_places_are_quoted_no_more(options: dict[str, Any]) -> None:
    documents = ["ab  a é ab c", "a é 世 ab"]
    guide = SubstringGuide(documents, PLAIN, none_text="none at all", **options)
    collapsed = options.get("whitespace") == "collapsed"
    expected = quotations(documents, "word", max_chars=options.get("max_chars"), collapsed=collapsed)
    taken = [Occurrence(0, 4, 5), Occurrence(1, 4, 5)]
    left = guide.without(taken)
    assert left is not None
    free = {
        text: [(n, s, e) for n, s, e in places if all(n != m or e <= b or s >= f for m, b, f in taken)]
        for text, places in expected.items()
    }
    assert {text.decode() for text in outputs(left)} == {text for text in free if free[text]} | {"none at all"}
    for text, places in free.items():
        assert left.places(text) == places
    laws.check(left, texts=2, tokens=5)
    assert guide.without([Occurrence(0, 0, 12), Occurrence(1, 0, 8)]) is None
    assert guide.places("ab") == [(0, 0, 2), (0, 8, 10), (1, 6, 8)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"context": ""}, LanguageError, "the context is empty: there is nothing to quote"),
        ({"context": [" ", "\n"]}, LanguageError, "the context is empty"),
        ({"context": []}, OptionError, "the context has no documents"),
        ({"context": ["a", 7]}, OptionError, "document 1 of the context must be a text"),
        ({"context": "a\ud800"}, OptionError, "the context has a lone surrogate at character 1"),
        ({"context": "ab cd", "min_chars": 6}, LanguageError, "has 5 characters, fewer than min_chars=6"),
        ({"context": "abcdef", "max_chars": 3}, LanguageError, "no piece .* boundary='word' has 1 to 3 characters"),
        ({"context": "ab", "min_chars": 0}, OptionError, "min_chars=0: expected a whole number of at least 1"),
        ({"context": "ab", "max_chars": True}, OptionError, "max_chars=True"),
        ({"context": "ab", "min_chars": 3, "max_chars": 2}, OptionError, "max_chars=2 is less than min_chars=3"),
        ({"context": "ab", "boundary": "page"}, OptionError, "boundary='page': one of 'word', 'character'"),
        ({"context": "ab", "whitespace": "none"}, OptionError, "whitespace='none': one of 'exact', 'collapsed'"),
        ({"context": "ab", "none_text": ""}, OptionError, "none_text='': expected a text that is not empty"),
        ({"context": "世", "vocabulary": PIECEMEAL}, LanguageError, "no tokens that spell a quotation"),
    ],
)
def test_mistakes(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SubstringGuide(**{"vocabulary": SMALL, **arguments})


def test_bytes_that_no_text_has_lead_nowhere() -> None:
    guide = SubstringGuide(["ab", "ab"], Vocabulary([*BYTES, b"b\xff", b"b\xffa", None], [258]))
    for state in (guide.start, guide.read(guide.start, b"a"), guide.read(guide.start, b"ab")):
        assert guide.advance(state, 0xFF) == DEAD and guide.advance(state, 256) == DEAD
    assert set(outputs(guide)) == {b"ab"}


def test_searching_long_quotations_is_counted() -> None:
    """Each quotation was looked at from its begin to its end: minutes, where no single bytes are tokens."""
    letters = [bytes([letter]) for letter in b"abc"]
    vocabulary = Vocabulary([*letters, b"aa", b"ab", None], [5])
    limits = Limits(work=20_000_000)
    with Meter() as meter, pytest.raises(LimitError, match="work="):
        SubstringGuide("a" * 50_000, vocabulary, boundary="character", min_chars=10_000, limits=limits)
    assert meter.spent < 40_000_000


@pytest.mark.parametrize("options", [{}, {"max_chars": 30}, {"whitespace": "collapsed"}, {"boundary": "sentence"}])
def test_twice_the_documents_take_twice_the_work(options: dict[str, Any]) -> None:
    spent: list[int] = []
    for count in (2000, 4000):
        with Meter() as meter:
            SubstringGuide([f"Document {number} says  this." for number in range(count)], PLAIN, **options)
            spent.append(meter.spent)
    assert 0 < spent[1] <= 2.4 * spent[0]
