"""RegexGuide against `re`, against partial matches of the `regex` package, and against interegular."""

import re
from random import Random

import interegular
import numpy as np
import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from trellm import Vocabulary
from trellm.guides import DEAD, FSMGuide, RegexGuide, laws

from ..vocabularies import SMALL
from .naive_guide import PartialMatchGuide
from .patterns import near, plain_patterns

ATOMS = ["a", "b", "[ab]", "[a-c]", ".", "[^a]", "é", "[é世]", "(?:ab)", "(?:a|bc)", "(?:aé|a)", "(?:b?a)", "(?:|a)"]
GROUPS = ["", "?", "{2}", "+"]
COUNTS = ["", "", "*", "+", "?", "{2}", "{3}", "{0,3}", "{2,5}", "{3,}", "{0,12}", "{0}"]


def simple_patterns(atoms: list[str] = ATOMS, counts: list[str] = COUNTS, most: int = 3) -> st.SearchStrategy[str]:
    """Patterns that mean the same to all libraries, and that backtracking can bear."""
    one = st.builds(lambda atom, count: atom + count, st.sampled_from(atoms), st.sampled_from(counts))
    flat = st.lists(one, min_size=1, max_size=most).map("".join)
    group = st.builds(lambda left, right, count: f"(?:{left}|{right}){count}", flat, flat, st.sampled_from(GROUPS))
    return st.lists(one | group, min_size=1, max_size=most).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte-level BPE that knows the texts of these tests."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(["abcabaab", "aéaébé", "世世a", "b\nab\n", "ccabbabc"] * 9, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer, eos_ids=[0])


def alive_after(guide: RegexGuide, tokens: list[int]) -> list[bool]:
    """Whether the guide is alive after each of the tokens; masks must foretell it."""
    state, alive = guide.start, []
    for token in tokens:
        if state != DEAD:
            allowed = laws.allows(guide.mask(state), token)
            state = guide.advance(state, token)
            assert allowed == (state != DEAD)
        alive.append(state != DEAD)
    return alive


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_every_prefix_under_three_segmentations(
    tokenizer: Tokenizer, vocabulary: Vocabulary, data: st.DataObject
) -> None:
    pattern = data.draw(simple_patterns())
    guide, reference = RegexGuide(pattern, vocabulary), regex.compile(pattern)
    of_byte = {text[0]: token for token, text in enumerate(vocabulary.tokens) if text and len(text) == 1}
    for text in data.draw(st.lists(st.text("abcé世\n", max_size=8), min_size=5, max_size=5)):
        whole = text.encode()
        ways = {
            "tokenizer": tokenizer.encode(text).ids,
            "bytes": [of_byte[byte] for byte in whole],
            "random": laws.spelling(guide, whole, Random(text)),
        }
        boundaries = {len(text[:size].encode()): text[:size] for size in range(len(text) + 1)}
        for way, tokens in ways.items():
            assert b"".join(vocabulary.tokens[token] or b"" for token in tokens) == whole
            length = 0
            for token, alive in zip(tokens, alive_after(guide, tokens), strict=True):
                length += len(vocabulary.tokens[token] or b"")
                if length in boundaries:
                    viable = reference.fullmatch(boundaries[length], partial=True) is not None
                    assert alive == viable, (way, boundaries[length])
        end = guide.automaton.read(guide.start, whole)
        assert (end != DEAD and guide.is_accepting(end)) == (reference.fullmatch(text) is not None)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_accepts_what_re_matches(data: st.DataObject) -> None:
    pattern, example = data.draw(plain_patterns())
    try:
        reference = re.compile(pattern)
    except (re.error, ValueError, OverflowError):
        assume(False)
    guide = RegexGuide(pattern, SMALL)
    for text in data.draw(st.lists(near(example, "abAé1 -\n😀K"), min_size=1, max_size=4)):
        state = guide.start
        for byte in text.encode():
            state = guide.advance(state, byte) if state != DEAD else DEAD
        accepts = state != DEAD and guide.is_accepting(state)
        assert accepts == (reference.fullmatch(text) is not None), text


@settings(max_examples=25, derandomize=True, deadline=None)
@given(simple_patterns(), st.randoms(use_true_random=False))
def test_the_oracle_of_the_outlines_blog(pattern: str, random: Random) -> None:
    vocabulary = Vocabulary.from_characters([*"abcé世\n", "ab", "ba", "aa", "bc", "aé", "abc", "世a", "aaaa", "\n\n"])
    guide, oracle = RegexGuide(pattern, vocabulary), PartialMatchGuide(pattern, vocabulary)
    for _ in range(2):
        state, text = guide.start, oracle.start
        for _ in range(6):
            assert np.array_equal(guide.mask(state), oracle.mask(text)), oracle.texts[text]
            assert guide.is_accepting(state) == oracle.is_accepting(text)
            choices = [t for t in range(vocabulary.size - 1) if laws.allows(guide.mask(state), t)]
            if not choices:
                break
            token = random.choice(choices)
            state, text = guide.advance(state, token), oracle.advance(text, token)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(simple_patterns(["a", "b", "[ab]", "[^a]", "é", "(?:ab)", "(?:|a)"], ["", "", "*", "+", "?", "{1,3}"], most=2))
def test_the_same_automaton_as_interegular(pattern: str) -> None:
    machine = interegular.parse_pattern(pattern).to_fsm()
    theirs, ours = FSMGuide(machine, SMALL).dfa().minimised(), RegexGuide(pattern, SMALL).dfa().minimised()
    assert np.array_equal(theirs.transitions, ours.transitions)
    assert np.array_equal(theirs.accepting, ours.accepting)


@pytest.mark.parametrize(
    ("pattern", "dialect", "flags", "matching", "other"),
    [
        (r"\d+", "python", 0, "٣1", "x"),
        (r"\d+", "ecma", 0, "31", "٣"),
        ("a.b", "python", re.S, "a\nb", "ab"),
        ("a.b", "python", re.I, "AxB", "a\nb"),
        (r"(?=[a-z]*1)\w{3}", "python", 0, "ab1", "abc"),
        (r"\bab\b !", "python", 0, "ab !", "ab!"),
        (r"[^\x00-\x7f]{2}", "python", 0, "é🙂", "aé"),
        ("", "python", 0, "", "a"),
    ],
)
def test_dialects_flags_and_looking_around(pattern: str, dialect: str, flags: int, matching: str, other: str) -> None:
    guide = RegexGuide(pattern, SMALL, flags=flags, dialect=dialect)  # type: ignore[arg-type]
    for text, expected in ((matching, True), (other, False)):
        end = guide.automaton.read(guide.start, text.encode())
        assert (end != DEAD and guide.is_accepting(end)) == expected
    laws.check(guide, texts=2, tokens=6)
