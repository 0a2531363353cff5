"""Guides of grammars, token by token, against enumerated languages, regular expressions and Lark."""

import itertools
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

import lark
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trellm import Vocabulary
from trellm.errors import LanguageError, OptionError
from trellm.guides import DEAD, CFGGuide, RegexGuide, laws, tokens_of
from trellm.guides.grammar import parse_lark

from .documentation import NAMES, load
from .test_lark_language import TEXTS, grammars, lark_parser, parses
from .tokens import VOCABULARY

LETTERS = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), b"ab", b"ba", b"aa", b"b b", b" a", b"bab", b"abab ", None], eos_ids=[263]
)


@pytest.mark.parametrize("name", NAMES)
def test_laws_on_the_documented_grammars(name: str) -> None:
    laws.check(CFGGuide(load(name), VOCABULARY), seed=1, texts=3, tokens=14, sample=60)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_does_not_depend_on_what_was_asked(name: str) -> None:
    laws.does_not_remember(lambda: CFGGuide(load(name), VOCABULARY), texts=3, tokens=8)


def spellings(text: bytes, vocabulary: Vocabulary) -> Iterable[list[int]]:
    """All sequences of tokens that spell a text."""
    if not text:
        yield []
    for token, piece in enumerate(vocabulary.tokens):
        if piece and text.startswith(piece):
            yield from ([token, *rest] for rest in spellings(text[len(piece) :], vocabulary))


def follow(guide: CFGGuide, tokens: list[int]) -> int:
    """The state after the tokens, DEAD at the first that leads nowhere; in the mask exactly if it leads on."""
    state = guide.start
    for token in tokens:
        allowed = laws.allows(guide.mask(state), token)
        state = guide.advance(state, token)
        assert allowed == (state != DEAD)
        if not allowed:
            break
    return state


@settings(max_examples=25, derandomize=True, deadline=None)
@given(grammars())
def test_accepts_what_lark_parses_however_it_is_spelt(text: str) -> None:
    try:
        reference = lark_parser(text)
        grammar = parse_lark(text)
    except (lark.exceptions.GrammarError, AssertionError, LanguageError):
        assume(False)
    guide = CFGGuide(grammar, LETTERS)
    for sample in TEXTS:
        expected = parses(reference, sample)
        for tokens in spellings(sample.encode(), LETTERS):
            state = follow(guide, tokens)
            assert (state != DEAD and guide.is_accepting(state)) == expected, sample
            assert not expected or laws.allows(guide.mask(state), LETTERS.eos_ids[0])


class Said(NamedTuple):
    """One language said three ways; `texts` is None where it is not finite."""

    lark: str
    regex: str
    texts: frozenset[str] | None


def _sequence(one: Said, other: Said) -> Said:
    texts = one.texts and other.texts and frozenset(a + b for a in one.texts for b in other.texts)
    return Said(f"({one.lark} {other.lark})", one.regex + other.regex, texts)


def _choice(one: Said, other: Said) -> Said:
    texts = one.texts and other.texts and one.texts | other.texts
    return Said(f"({one.lark} | {other.lark})", f"(?:{one.regex}|{other.regex})", texts)


def _repeat(inner: Said, low: int, more: int) -> Said:
    texts = inner.texts and frozenset(
        "".join(parts) for count in range(low, low + more + 1) for parts in itertools.product(inner.texts, repeat=count)
    )
    return Said(f"({inner.lark})~{low}..{low + more}", f"(?:{inner.regex}){{{low},{low + more}}}", texts)


def _starred(inner: Said) -> Said:
    return Said(f"({inner.lark})*", f"(?:{inner.regex})*", None)


ATOMS = st.sampled_from(
    [
        Said('"a"', "a", frozenset({"a"})),
        Said('"bab"', "bab", frozenset({"bab"})),
        Said('["ab"]', "(?:ab)?", frozenset({"", "ab"})),
        Said("/[ab]/", "[ab]", frozenset({"a", "b"})),
        Said("/b|bb/", "(?:b|bb)", frozenset({"b", "bb"})),
        Said("inner", "(?: a|ba)", frozenset({" a", "ba"})),
    ]
)


def _joined(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    return st.one_of(
        st.builds(_sequence, inner, inner),
        st.builds(_choice, inner, inner),
        st.builds(_repeat, inner, st.integers(0, 2), st.integers(1, 2)),
    )


FINITE = st.recursive(ATOMS, _joined, max_leaves=5)
REGULAR = st.recursive(ATOMS, lambda inner: st.one_of(_joined(inner), inner.map(_starred)), max_leaves=6)
HEAD = 'inner: " a" | "b" "a"\nstart: '


@settings(max_examples=40, derandomize=True, deadline=None)
@given(FINITE.filter(lambda said: said.texts is not None and len(said.texts) < 300))
def test_a_token_is_allowed_iff_some_text_goes_on_so(said: Said) -> None:
    guide = CFGGuide(HEAD + said.lark, LETTERS)
    texts = {text.encode() for text in said.texts or ()}
    prefixes = {text[:size] for text in texts for size in range(len(text) + 1)}
    reached = {b"": guide.start}
    for prefix in sorted(prefixes, key=len):
        state = reached[prefix]
        expected = {token for token, piece in enumerate(LETTERS.tokens) if piece and prefix + piece in prefixes}
        eos = set(LETTERS.eos_ids) if prefix in texts else set()
        assert set(tokens_of(guide.mask(state))) == expected | eos, prefix
        for token in expected:
            after = guide.advance(state, token)
            assert reached.setdefault(prefix + (LETTERS.tokens[token] or b""), after) == after


@settings(max_examples=40, derandomize=True, deadline=None)
@given(REGULAR, st.integers(0, 99))
def test_regular_grammars_have_the_masks_of_regular_expressions(said: Said, seed: int) -> None:
    assert_same_masks(CFGGuide(HEAD + said.lark, LETTERS), RegexGuide(said.regex, LETTERS), seed)


RECURSIVE = {
    "left": ('start: start "," /[a-zé]+/ | /[a-zé]+/', "[a-zé]+(,[a-zé]+)*"),
    "right": ('start: item "," start | item\nitem: /[a-z]+/', "[a-z]+(,[a-z]+)*"),
    "both": ('start: start "," start | /[a-z]{1,3}/', "[a-z]{1,3}(,[a-z]{1,3})*"),
    "hidden": ('start: [x] start "b" | "a"\nx: [x]', "ab*"),
    "strings": (r'start: "\"" /[^"\\]/~0..40 "\""', r'"[^"\\]{0,40}"'),
    "ignored": ('start: WORD+\nWORD: /[a-z]+/\n%ignore " "', " *[a-z][a-z ]*"),
    "mutual": ('start: "a" x | "a"\nx: "b" start | "b"', "(ab)*a|(ab)+"),
}


@pytest.mark.parametrize("name", RECURSIVE)
def test_recursion_that_is_regular(name: str) -> None:
    text, pattern = RECURSIVE[name]
    for seed in range(3):
        assert_same_masks(CFGGuide(text, VOCABULARY), RegexGuide(pattern, VOCABULARY), seed)


def assert_same_masks(one: CFGGuide, other: RegexGuide, seed: int) -> None:
    """Compare the masks along a random text of both."""
    random = Random(seed)
    state, twin = one.start, other.start
    eos = set(one.vocabulary.eos_ids)
    for _ in range(20):
        mask = one.mask(state)
        assert np.array_equal(mask, other.mask(twin))
        choices = [token for token in tokens_of(mask) if token not in eos]
        if not choices:
            break
        token = random.choice(choices)
        state, twin = one.advance(state, token), other.advance(twin, token)


def test_grammars_in_either_syntax_from_any_rule() -> None:
    grammar = 'start: "x" other\nother: "y"'
    assert follow(CFGGuide(grammar, LETTERS), [*b"xy"]) != DEAD
    assert follow(CFGGuide(grammar, LETTERS, start="other"), [*b"y"]) != DEAD
    assert follow(CFGGuide(parse_lark(grammar), LETTERS, start="other"), [*b"y"]) != DEAD
    assert follow(CFGGuide('root ::= "x"', LETTERS, syntax="gbnf"), [*b"x"]) != DEAD
    with pytest.raises(OptionError, match=r"syntax='abnf': one of 'auto', 'lark', 'gbnf'"):
        CFGGuide(grammar, LETTERS, syntax="abnf")  # pyright: ignore
