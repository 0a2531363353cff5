"""Distances by brute force, and closing within a budget, with vocabularies that have all bytes and that lack some."""

import contextlib
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from trellm import Limits, Vocabulary
from trellm.errors import LanguageError, LimitError
from trellm.guides import CFGGuide, ChoiceGuide, JSONGuide, RegexGuide, laws, mask_within, tokens_of

from ..naive_masks import naive_mask
from ..regex.naive_guide import PartialMatchGuide
from ..support import FAR, LIMIT, NEVER, LiftedGuide
from ..vocabularies import CHARACTERS, PIECEMEAL, SMALL

SINGLES = Vocabulary.from_bytes()

SPELLING = Vocabulary([*(bytes([byte]) for byte in range(256)), b"ab", b"aab", b"bb", b"bab", b"bbbb", None], [261])
COUNTS = ["", "", "+", "{2}", "{1,3}", "{3,5}", "{4}", "*", "?"]


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "[ab]", "(?:ab)", "(?:a|bb)", "(?:b|aab)"])
    one = st.builds(lambda atom, count: atom + count, atoms, st.sampled_from(COUNTS))
    flat = st.lists(one, min_size=1, max_size=3).map("".join)
    group = st.builds(lambda left, right: f"(?:{left}|{right}){{2}}", flat, flat)
    return st.lists(one | group, min_size=1, max_size=3).map("".join)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(patterns(), st.sampled_from([SPELLING, PIECEMEAL]))
def test_what_is_enough_is_no_less_than_the_distance(pattern: str, vocabulary: Vocabulary) -> None:
    try:
        guide, asked_late = RegexGuide(pattern, vocabulary), RegexGuide(pattern, vocabulary)
    except LanguageError:
        return
    for text in (b"", b"a", b"b", b"ab", b"ba"):
        # A guide that knows no distance yet, and one that does, with ever less left.
        early, late = guide.read(guide.start, text), asked_late.read(asked_late.start, text)
        distance = asked_late.distance(late)
        for left in (NEVER, 40, distance + 1, distance, distance - 1, 0, -1):
            for each, state in ((guide, early), (asked_late, late)):
                found = each.known_bound(state, left)
                assert (found is not None) == (distance <= left) == each.fits(state, left), (text, left)
                assert found is None or distance <= found <= left
    assert guide.known_bound(-1, 40) is None


def fewest_tokens(guide: LiftedGuide, state: int, limit: int) -> int | None:
    """The true distance by breadth-first search over states; None if it is above `limit`."""
    texts = [text for text in guide.vocabulary.tokens if text and set(text) <= set(b"ab\xc3\xa9")]
    layer, seen = {state}, {state}
    for steps in range(limit + 1):
        if any(guide.automaton.is_accepting(place) for place in layer):
            return steps
        layer = {guide.automaton.read(place, text) for place in layer for text in texts} - {-1} - seen
        seen |= layer
    return None


@settings(max_examples=80, derandomize=True, deadline=None)
@given(patterns())
def test_distances_are_never_too_small_and_mostly_exact(pattern: str) -> None:
    guide = RegexGuide(pattern, SPELLING)
    for text in (b"", b"a", b"b", b"ab", b"ba"):
        state = guide.automaton.read(guide.start, text)
        if state >= 0:
            distance, true = guide.distance(state), fewest_tokens(guide, state, 6)
            assert true is None or true <= distance <= true + (true > 1), (text, true, distance)
            assert true is not None or distance > 6


@settings(max_examples=80, derandomize=True, deadline=None)
@given(patterns())
def test_distances_are_exact_where_bytes_are_missing(pattern: str) -> None:
    try:
        guide = RegexGuide(pattern, PIECEMEAL)
    except LanguageError:
        whole = RegexGuide(pattern, SPELLING)
        texts = (text for text in PIECEMEAL.tokens if text)
        assert not _spellable(whole, list(texts)), "a language that the vocabulary can spell was refused"
        return
    distance = guide.distance(guide.start)
    assert fewest_tokens(guide, guide.start, distance) == distance
    for token in naive_mask(guide, guide.start) - set(PIECEMEAL.eos_ids):
        after = guide.automaton.read(guide.start, PIECEMEAL.tokens[token] or b"")
        assert laws.allows(guide.mask(guide.start), token) == (fewest_tokens(guide, after, 40) is not None)


def _spellable(guide: LiftedGuide, texts: list[bytes]) -> bool:
    layer, seen = {guide.start}, {guide.start}
    while layer:
        if any(guide.automaton.is_accepting(place) for place in layer):
            return True
        layer = {guide.automaton.read(place, text) for place in layer for text in texts} - {-1} - seen
        seen |= layer
    return False


@pytest.mark.parametrize(
    "pattern", ["a{7}|b", "(?:ab){2,3}", "[ab]{3}a", "b{9}|(?:ab)+b", "(?:bab|a)b{0,3}a", "a{3}b{3}|b{3}a{3}"]
)
def test_distances_and_masks_against_the_partial_match_guide(pattern: str) -> None:
    vocabulary = Vocabulary.from_characters([*"ab", "ab", "bb", "aab", "bbb"])
    guide, oracle = RegexGuide(pattern, vocabulary), PartialMatchGuide(pattern, vocabulary)
    for size in range(4):
        for tokens in product(range(6), repeat=size):
            state, text = guide.start, oracle.start
            for token in tokens:
                if state >= 0:
                    state, text = guide.advance(state, token), oracle.advance(text, token)
                    assert (state >= 0) == (text >= 0)
            if state >= 0:
                assert guide.distance(state) == oracle.distance(text), tokens
                for left in (1, 2, 4):
                    assert set(tokens_of(mask_within(guide, state, left))) == set(
                        tokens_of(mask_within(oracle, text, left))
                    )


@pytest.mark.parametrize(
    "pattern", ['"[^"]{3,40}",', "(?:ab|ba){2,5}c*abc", "a{3,9}b|(?:aba){2,4}[0-9]{3}", "é{2,30}世"]
)
def test_distances_do_not_depend_on_what_was_asked_before(pattern: str) -> None:
    laws.does_not_remember(lambda: RegexGuide(pattern, SMALL))


def test_closing_a_deeply_nested_text() -> None:
    guide = CFGGuide('start: "[" start? ("," start)* "]" | "(" start ")" "!"', SMALL)
    text = b"[(" * 40
    state = guide.automaton.read(guide.start, text)
    needed = guide.distance(state)
    assert needed == 40 * 3 + 2
    for extra in (0, 3):
        place, left = state, needed + extra
        random = Random(extra)
        while not guide.is_accepting(place):
            choices = [t for t in tokens_of(mask_within(guide, place, left)) if t not in SMALL.eos_ids]
            place, left = guide.advance(place, random.choice(choices)), left - 1
            assert guide.distance(place) <= left


def test_a_choice_of_one_long_text() -> None:
    text = "x" * 3000 + "ab"
    guide = ChoiceGuide([text, "x" * 10 + "a"], SMALL)
    assert guide.distance(guide.start) == 11
    state = guide.automaton.read(guide.start, b"x" * 11)
    assert guide.distance(state) == 3000 - 11 + 1


@pytest.mark.parametrize(("pattern", "expected"), [("cc|bbbb", 1), ("cc|bbbb[bd]{3}", 2)])
def test_fewer_tokens_of_a_slightly_longer_text(pattern: str, expected: int) -> None:
    guide = RegexGuide(pattern, SPELLING)
    assert guide.distance(guide.start) == expected


@pytest.mark.parametrize("left", [0, -3])
def test_nothing_left(left: int) -> None:
    guide = RegexGuide("a*", SMALL)
    assert set(tokens_of(mask_within(guide, guide.start, left))) == set(SMALL.eos_ids)
    guide = RegexGuide("a+", SMALL)
    assert not tokens_of(mask_within(guide, guide.start, left))


def test_what_a_vocabulary_cannot_spell() -> None:
    with pytest.raises(LanguageError, match="no token contains 'c'"):
        RegexGuide("abc+", PIECEMEAL)
    with pytest.raises(LanguageError, match="do not fit together"):
        RegexGuide("a*b", Vocabulary([b"bb", b"a", None], [2]))
    with pytest.raises(LanguageError, match="0xE4"):
        RegexGuide("世", PIECEMEAL)
    with pytest.raises(LanguageError, match="no tokens that spell"):
        RegexGuide("a+", Vocabulary([None, None], [0]))


def test_choices_that_cannot_be_spelt_are_not_dropped_silently() -> None:
    with pytest.raises(LanguageError, match="the choice 'abbba'; the longest beginning that they spell is 'abbb'"):
        ChoiceGuide(["ab", "abbba", "a世"], Vocabulary([b"ab", b"bb", b"b", b"aba", None], [4]))
    guide = ChoiceGuide(["aé", "abbb"], PIECEMEAL)
    assert guide.distance(guide.start) == 2


def test_deep_nesting_where_bytes_are_missing() -> None:
    """A search among sequences of tokens would look at far too many; the shortest text is spelt instead."""
    vocabulary = Vocabulary.from_characters([*"[](),ab", "[[", "]]", "],", "ab,ab,ab,"])
    guide = CFGGuide('start: "[" (start ("," start)*)? "]" | "(" start ")" | /[ab]+/', vocabulary)
    state, random = guide.start, Random(0)
    for _ in range(150):
        allowed = [t for t in tokens_of(guide.mask(state)) if t not in vocabulary.eos_ids]
        opening = [t for t in allowed if (vocabulary.tokens[t] or b"").strip(b"[(") == b""]
        state = guide.advance(state, random.choice(opening or allowed))
    left = guide.distance(state)
    assert left > 60
    while not guide.is_accepting(state):
        choices = [t for t in tokens_of(mask_within(guide, state, left)) if t not in vocabulary.eos_ids]
        state, left = guide.advance(state, random.choice(choices)), left - 1
        assert guide.distance(state) <= left


def test_a_search_without_end_is_an_error_before_generation() -> None:
    """The tokens hold three brackets each, and the shortest texts of the language have no such number."""
    vocabulary = Vocabulary([b"[[[", b"]]]", b"[[]", b"x", None], [4])
    with pytest.raises(LimitError, match="no way to spell a complete text"):
        CFGGuide('start: "[[" start "]]" | "x" start "x" | "y"', vocabulary)


def test_two_guides_on_one_automaton_say_what_each_would_alone() -> None:
    other = Vocabulary([*SMALL.tokens[:256], b"[[", b"]]", None], [258])
    make = lambda vocabulary: CFGGuide('start: "[" start? ("," start)* "]" | /[ab]{2,4}/', vocabulary)  # noqa: E731
    shared = make(SMALL).automaton
    guides = [LiftedGuide(shared, vocabulary) for vocabulary in (SMALL, other)]
    alone = [make(vocabulary) for vocabulary in (SMALL, other)]
    places, twins = [guide.start for guide in guides], [guide.start for guide in alone]
    for byte in b"[[[],[ab,[[],[abab],":
        for i in range(2):
            shared.is_crowded = True
            places[i] = guides[i].advance(places[i], byte)
            twins[i] = alone[i].advance(twins[i], byte)
            assert guides[i].mask(places[i]).tobytes() == alone[i].mask(twins[i]).tobytes()
            assert guides[i].distance(places[i]) == alone[i].distance(twins[i])


def test_branches_that_cannot_be_spelt_are_left_out() -> None:
    """b can only be written in pairs or after a, and c never."""
    guide = RegexGuide("a(?:b{2}|bc|c|é)|b{5}", PIECEMEAL)
    first = {PIECEMEAL.tokens[token] for token in tokens_of(guide.mask(guide.start))}
    assert first == {b"a"}
    state = guide.advance(guide.start, 0)
    assert {PIECEMEAL.tokens[token] for token in tokens_of(guide.mask(state))} == {b"bb", "é".encode()}
    assert guide.advance(guide.start, 1) == -1 and guide.advance(guide.start, 2) == -1
    laws.check(guide)


@pytest.mark.parametrize("pattern", ["(?:ab|世界|é){1,4}", '"[^"]*"', r"[\s\S]{2,9}1", "[01]+ [01]+\n"])
def test_laws_where_bytes_are_missing(pattern: str) -> None:
    laws.check(RegexGuide(pattern, CHARACTERS), texts=3, tokens=8)
    laws.does_not_remember(lambda: RegexGuide(pattern, CHARACTERS), texts=3)


def test_word_pieces() -> None:
    """As WordPiece spells: words have a space before them, their continuations none, and single letters both."""
    words = [" the", " dog", " sleep", "s", "ing", *(f" {letter}" for letter in "abdgs"), *"abdgs", ".", "the"]
    vocabulary = Vocabulary([*(word.encode() for word in words), None], [len(words)])
    guide = RegexGuide(r"(?: ?[a-z]+)+\.", vocabulary)
    laws.check(guide, texts=3, tokens=6)
    guide = RegexGuide(r"the dogs? sleep(?:s|ing)?\.?", vocabulary)
    assert guide.distance(guide.start) == 3
    allowed = {vocabulary.tokens[token] for token in tokens_of(guide.mask(guide.start))}
    assert allowed == {b"the"}


def doubled(times: int) -> str:
    """A grammar whose only text has 2 ** times bytes."""
    rules = "".join(f"t{i + 1}: t{i} t{i}\n" for i in range(times))
    return f'start: t{times}\n{rules}t0: "a"\n'


def nested(depth: int, items: int) -> dict[str, Any]:
    """Arrays in arrays: `items` in each, `depth` deep."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": items}
    return schema


def test_how_far_a_very_long_text_is_from_its_end_is_a_number() -> None:
    """Nobody goes along a text of millions of bytes."""
    guide = CFGGuide(doubled(24), SPELLING)
    with guide.automaton.meter:
        assert guide.distance(guide.start) == 1 << 24
    assert guide.automaton.meter.spent < 100_000
    guide = JSONGuide(nested(2, 3000), SPELLING)
    assert guide.distance(guide.start) == 2 + 2999 + 3000 * (2 + 3000 + 2999)


@pytest.mark.parametrize(
    "guide", [lambda: CFGGuide(doubled(16), SPELLING), lambda: RegexGuide("(?:[ab]{500}c){80}", SPELLING)]
)
def test_distances_around_the_place_where_bytes_are_counted(guide: Callable[[], LiftedGuide]) -> None:
    made = guide()
    state = made.start
    short = ord("a")
    nothing = 0
    while made.bytes_needed(np.array([state], np.int32))[0] > FAR - 3:
        place = made.advance(state, short)
        state = place if place >= 0 else made.advance(state, ord("c"))
        needed = int(made.bytes_needed(np.array([state], np.int32))[0])
        if abs(needed - FAR) < 4:
            distance = made.distance(state)
            assert distance == needed if needed > FAR else distance <= needed
            laws.check_state(made, state, Random(0), 40)
            nothing += 1
    assert nothing


def test_a_text_that_is_too_long_to_be_counted() -> None:
    for guide in (CFGGuide(doubled(40), SPELLING), JSONGuide(nested(4, 1000), SPELLING)):
        assert guide.mask(guide.start).any()
        with pytest.raises(LimitError, match="1,073,741,824 bytes or more"):
            guide.distance(guide.start)
        assert not mask_within(guide, guide.start, 1_000_000).any()
    with pytest.raises(LimitError, match="no way to spell a complete text"):
        CFGGuide(doubled(40), Vocabulary.from_characters([*"ab"]))


def test_a_guide_knows_the_same_after_a_limit_was_met() -> None:
    """A search that is broken off leaves nothing half known behind."""
    whole, guide = (RegexGuide("(?:[ab]{30}|c{31}){60}|d{2000}", SPELLING) for _ in range(2))
    expected = whole.distance(whole.start)
    meter = guide.automaton.meter
    stopped = 0
    for most in (2_000, 5_000, 20_000, 50_000, 100_000):
        meter.counts[LIMIT] = most
        with contextlib.suppress(LimitError), meter:
            guide.distance(guide.start)
        stopped += meter.spent > most
    assert stopped > 2
    meter.counts[LIMIT] = Limits().work
    assert guide.distance(guide.start) == expected
    laws.closes_in_time(guide, expected, Random(1))


@pytest.mark.parametrize(
    ("make", "distance"),
    [
        (lambda n: CFGGuide("start: " + " ".join(f'"{number:04}"' for number in range(n)), SINGLES), 4),
        (lambda n: RegexGuide("(?i)" + "éß" * n, SINGLES), 4),
        (lambda n: RegexGuide(r".\b." * n, SINGLES), 2),
    ],
    ids=["words", "characters", "boundaries"],
)
def test_costs_of_chains_that_run_either_way(make: Callable[[int], LiftedGuide], distance: int) -> None:
    """They took as many rounds as there are pieces."""
    spent: list[int] = []
    for count in (200, 400):
        guide = make(count)
        assert guide.distance(guide.start) == distance * count
        spent.append(guide.automaton.meter.spent)
    assert spent[1] < 2.6 * spent[0]


def test_a_missing_byte_costs_little(llama3_tokenizer: Tokenizer) -> None:
    """A byte that is lost, here to a model's EOS, was searched for among all that may follow in each of many states."""
    vocabulary = Vocabulary.from_tokenizer(llama3_tokenizer, eos_ids=[2])
    notes = {"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 1, "maxItems": 3}
    record = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "notes": notes},
        "required": ["name", "notes"],
        "additionalProperties": False,
    }
    guide = JSONGuide({"type": "array", "items": record}, vocabulary, limits=Limits(work=2_000_000))
    rng, state, left = Random(1), guide.start, 30
    while True:
        token = rng.choice(list(tokens_of(guide.mask_within(state, left))))
        if token in vocabulary.eos_ids:
            break
        state, left = guide.advance(state, token), left - 1
    assert guide.is_accepting(state)
