"""Masks against a loop over the vocabulary; shortcuts at loops against plain walks, on a large vocabulary too."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Vocabulary
from trellm.guides import CFGGuide, ChoiceGuide, RegexGuide, tokens_of

from ..naive_masks import naive_mask
from ..support import LiftedGuide, signature
from ..vocabularies import BYTES, LONG, SMALL

ATOMS = ["a", "b", "[ab]", "[a-z]", ".", "[^a]", r"\d", "é", "[é世]", r'[^"\\]', "(?:ab)", "(?:a|bc)", "(?:aé|a)"]
ATOMS += [r"[\s\S]", r"\w", "(?:a|aa)", "[ -~]"]
COUNTS = ["", "", "*", "+", "?", "{2}", "{0,3}", "{2,5}", "{1,20}", "{3,}", "{0,100}", "{60,70}", "{5,5}", "{0,12}"]
LOOPING = [
    r'"(?:[^"\\\x00-\x1f]|\\.){0,20}"',
    r"[^\n]*\n[ab]",
    ".{1,200}",
    r"[a-z]{5,5}(?:aé|a)+",
    r"[\s\S]{0,100}[^\"\\]{2,5}",
    ".{1,20}[^a]?.{0,100}",
    r"(?:[ -~]{3}|[é世]{2,5}|\w[a-z]*)+",
    "[^é]{3,}é[^世]*",
    r"(?:\w+ ?){2,9}",
    r"[\s\S]*",
    "[a-z]{120,140}b?",
    "(?:.{3}){4,9}",
]


@st.composite
def counted_patterns(draw: st.DrawFn) -> str:
    """Patterns in which loops and counters follow, overlap and contain each other."""
    one = st.builds(lambda atom, count: atom + count, st.sampled_from(ATOMS), st.sampled_from(COUNTS))
    flat = st.lists(one, min_size=1, max_size=3).map("".join)
    group = st.builds(lambda body, count: f"(?:{body}){count}", flat, st.sampled_from(["", "*", "+", "?", "{2}"]))
    return "".join(draw(st.lists(one | group, min_size=1, max_size=3)))


def plain_mask(guide: LiftedGuide, state: int) -> set[int]:
    """The mask by one walk without shortcuts; `test_naive_masks` proves that walk."""
    after = guide._closing.after_tokens(state)
    allowed = set(guide._tables.trie.ids[after >= 0].tolist())
    return allowed | set(guide.vocabulary.eos_ids) if guide.is_accepting(state) else allowed


def random_states(guide: LiftedGuide, random: Random, texts: int, tokens: int) -> list[int]:
    """States along random texts of rather long tokens."""
    found: dict[int, None] = {}
    for _ in range(texts):
        state = guide.start
        for _ in range(tokens):
            found[state] = None
            choices = [t for t in tokens_of(guide.mask(state)) if t not in guide.vocabulary.eos_ids]
            if not choices:
                break
            few = random.choices(choices, k=5)
            longest = max(few, key=lambda token: len(guide.vocabulary.tokens[token] or b""))
            state = guide.advance(state, longest if random.random() < 0.5 else few[0])
    return list(found)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(counted_patterns(), st.randoms(use_true_random=False))
def test_naive_masks(pattern: str, random: Random) -> None:
    guide = RegexGuide(pattern, SMALL)
    for state in random_states(guide, random, texts=2, tokens=4)[:5]:
        expected = naive_mask(guide, state)
        assert set(tokens_of(guide.mask(state))) == expected
        assert plain_mask(guide, state) == expected


@settings(max_examples=60, derandomize=True, deadline=None)
@given(counted_patterns(), st.randoms(use_true_random=False))
def test_shortcuts_at_loops(pattern: str, random: Random) -> None:
    guide = RegexGuide(pattern, SMALL)
    for state in random_states(guide, random, texts=3, tokens=6):
        assert set(tokens_of(guide.mask(state))) == plain_mask(guide, state), state


@pytest.mark.parametrize("pattern", LOOPING)
def test_shortcuts_at_loops_with_a_large_vocabulary(llama3: Vocabulary, pattern: str) -> None:
    random = Random(pattern)
    for _ in range(2):  # a loop's table is only made when the loop is met again
        guide = RegexGuide(pattern, llama3)
        for state in random_states(guide, random, texts=2, tokens=4):
            after = guide._closing.after_tokens(state)
            mask = guide._tables.pack(after >= 0)
            if guide.is_accepting(state):
                mask |= guide._tables.eos_words
            assert np.array_equal(guide.mask(state), mask), state


def test_every_state_of_a_bounded_string() -> None:
    """Near the bounds the long tokens go, one after the other."""
    guide = RegexGuide('"[^"]{3,90}"', SMALL)
    for state in guide.automaton.explore(1000):
        assert set(tokens_of(guide.mask(state))) == plain_mask(guide, state), state


def test_tokens_longer_than_a_count_leaves_room_for() -> None:
    guide = RegexGuide("a{0,400}|b{260}", LONG)
    text = {token: LONG.tokens[token] for token in range(LONG.size)}
    long_a = next(token for token in text if text[token] == b"a" * 300)
    long_b = next(token for token in text if text[token] == b"b" * 260)
    state = guide.start
    assert {long_a, long_b} <= set(tokens_of(guide.mask(state)))
    for count in range(1, 400):
        state = guide.advance(state, ord("a"))
        assert (long_a in tokens_of(guide.mask(state))) == (count + 300 <= 400), count


NESTED = """
start: item~1..300
item: "(" start ")" | "a"~2..100 "b"
"""
SHORT = Vocabulary([*BYTES, b"ab", b"aba", b"aaaa", b"bb", b"((", b"))", b"b))", b"ab)a", None], [264])


@pytest.mark.parametrize("make", [lambda: CFGGuide(NESTED, SHORT), lambda: RegexGuide("(a{2,99}[ab]{3,80}b)+", SHORT)])
def test_states_of_equal_signature_have_equal_masks(make: Callable[[], LiftedGuide]) -> None:
    guide = make()
    masks: dict[int, set[int]] = {}
    shared = 0
    for state in random_states(guide, Random(5), texts=20, tokens=60):
        number = guide.automaton.run(signature, state)
        mask = plain_mask(guide, state)
        shared += number in masks
        assert masks.setdefault(number, mask) == mask, state
    assert shared > 20 and len(masks) > 20


@pytest.mark.parametrize("first", [0, 1])
def test_states_that_only_what_tokens_spell_tells_apart(first: int) -> None:
    """Tokens of 6, 10 and 15 bytes spell 35 and 36 more, but not 29, which is beyond the longest of them."""
    guide = RegexGuide("a{71}", Vocabulary([b"a" * 6, b"a" * 10, b"a" * 15, None], [3]))
    states = [guide.start, guide.start]
    for place, tokens in enumerate([(0,) * 6, (1, 1, 2)]):
        for token in tokens:
            states[place] = guide.advance(states[place], token)
    masks = {state: tokens_of(guide.mask(state)) for state in (states[first], states[1 - first])}
    for state, expected in zip(states, ([1, 2], [0, 1, 2]), strict=True):
        assert masks[state] == [token for token in range(3) if guide.advance(state, token) >= 0] == expected


def test_tokens_without_bytes_are_never_allowed_and_equal_ones_all() -> None:
    guide = RegexGuide(r"[\s\S]*<s>", SMALL)
    allowed = tokens_of(guide.mask(guide.start))
    same = [token for token, text in enumerate(SMALL.tokens) if text == b"aba"]
    assert len(same) == 2 and set(same) <= set(allowed)
    assert not {302, 303, 304, 305} & set(allowed)
    state = guide.automaton.read(guide.start, b"<s>")
    assert {303, 305} == set(tokens_of(guide.mask(state))) & {302, 303, 304, 305}
    assert [guide.advance(state, token) for token in (302, 303, 304, 305)] == [-1, state, -1, state]
    assert guide.advance(guide.start, 303) == -1


@pytest.mark.parametrize("token", [-1, 306, 1 << 40])
def test_numbers_that_are_no_token_lead_nowhere(token: int) -> None:
    guide = RegexGuide("a*", SMALL)
    assert guide.advance(guide.start, token) == -1


def test_a_walk_may_meet_more_states_than_rows_are_kept(llama3: Vocabulary) -> None:
    """Every token is a choice: from the start the walk meets a state for every node of the trie."""
    random = Random(1)
    texts = [text.decode() for text in llama3.tokens if text and _is_text(text)]
    choices = random.sample(texts, 20_000)
    guide = ChoiceGuide(choices, llama3)
    allowed = {llama3.tokens[token] for token in tokens_of(guide.mask(guide.start))}
    assert {choice.encode() for choice in choices} <= allowed
    prefixes = {choice.encode()[:size] for choice in choices for size in range(1, len(choice.encode()) + 1)}
    assert allowed == prefixes & {text for text in llama3.tokens if text}


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(["abc", "[ab]", "(?:abd|abce)", "é", "[é世]", "x{3}", "y*", '"name":']), min_size=1))
def test_certain_bytes_are_those_to_which_each_state_has_no_alternative(pieces: list[str]) -> None:
    guide = RegexGuide("".join(pieces), SMALL)
    for state in random_states(guide, Random(0), 3, 12):
        expected, at = bytearray(), state
        while len(expected) < 9 and len(ways := np.flatnonzero(guide.after_bytes(at) >= 0)) == 1:
            expected.append(ways[0])
            at = guide.after_bytes(at).item(ways[0])
        assert guide.certain_bytes(state, 9) == bytes(expected)
    assert guide.certain_bytes(-1, 9) == b""


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False
