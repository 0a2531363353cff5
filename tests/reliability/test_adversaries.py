"""What came out of looking for trouble: inputs and uses that once crashed, hung, or gave wrong answers."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import threading
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np
import pytest
from trellm import AnyOf, Cancellation, Limits, Ordered, Phrase, Vocabulary
from trellm.errors import Cancelled, LimitError, OptionError, StateError
from trellm.guides import (
    DEAD,
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    GoalGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    mask_within,
    tokens_of,
)

from ..guides.support import NEVER, minimise

BYTES = Vocabulary.from_bytes()
GUIDES = {
    "regex": lambda: RegexGuide("a(b|c)*d", BYTES),
    "grammar": lambda: CFGGuide('start: "a" start "b" | "c"', BYTES),
    "json": lambda: JSONGuide({"type": "array", "items": {"type": "integer"}}, BYTES),
    "quote": lambda: SubstringGuide("ab aba b", BYTES, boundary="character"),
    "free": lambda: FreeGuide(BYTES),
    "aligned": lambda: AlignedGuide(RegexGuide("[ab]+", BYTES), b"aba"),
    "goals": lambda: GoalGuide(RegexGuide("[ab]{1,9}", BYTES), ["aa"]),
}
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def some_states(guide: Guide) -> list[int]:
    """The start, a state one token further, and one beyond that where there is one."""
    states = [guide.start]
    for _ in range(2):
        allowed = [token for token in tokens_of(guide.mask(states[-1])) if token not in guide.vocabulary.eos_ids]
        if allowed:
            states.append(guide.advance(states[-1], allowed[0]))
    return states


@pytest.mark.parametrize("kind", GUIDES)
def test_numbers_of_numpy_are_numbers(kind: str) -> None:
    """States and tokens of any integer type mean what ints mean, and poison nothing that is remembered."""
    guide, fresh = GUIDES[kind](), GUIDES[kind]()
    for state, same in zip(some_states(guide), some_states(fresh), strict=True):
        for integer in INTEGERS:
            odd = integer(state)
            assert np.array_equal(guide.mask(odd), fresh.mask(same))
            assert np.array_equal(mask_within(guide, odd, integer(9)), mask_within(fresh, same, 9))
            assert guide.distance(odd) == fresh.distance(same)
            assert guide.is_accepting(odd) == fresh.is_accepting(same)
            for token in (97, 98, 99, 49, 256):
                given = integer(min(token, np.iinfo(integer).max))
                after = guide.advance(odd, given)
                assert type(after) is int
                assert (after == DEAD) == (fresh.advance(same, int(given)) == DEAD)
                assert guide.advance(state, int(given)) == after


@pytest.mark.parametrize("kind", ["regex", "grammar", "json"])
def test_what_follows_dead_is_dead(kind: str) -> None:
    guide = GUIDES[kind]()
    assert isinstance(guide, RegexGuide | CFGGuide | JSONGuide)
    for state in some_states(guide):
        guide.distance(state)
    assert (guide.after_bytes(DEAD) == DEAD).all()
    assert (guide.after_tokens(DEAD) == DEAD).all()
    assert len(guide.after_tokens(DEAD)) == len(guide.after_tokens(guide.start))
    assert not guide.mask_below(DEAD, 0).any()
    assert guide.distance_below(DEAD, 0) >= NEVER
    assert guide.bytes_needed(np.array([DEAD, guide.start]))[0] >= NEVER
    for node in (-1, 10**6, 2**40, 1.5):
        with pytest.raises(OptionError, match="node"):
            guide.mask_below(guide.start, node)  # type: ignore[arg-type]


@pytest.mark.parametrize("items", [4, 1000])
def test_a_tail_in_any_buffer_is_its_bytes(items: int) -> None:
    child = RegexGuide("[a-z]+", BYTES)
    tail = memoryview(np.full(items, 0x6161616161616161, np.int64))
    assert AlignedGuide(child, tail).distance(0) == 8 * items + 1  # type: ignore[arg-type]
    changing = bytearray(b"abc")
    guide = AlignedGuide(child, changing)  # type: ignore[arg-type]
    changing[:] = b"zz"
    assert tokens_of(guide.mask(0)) == [ord("a")]


def test_a_tail_counts() -> None:
    child = RegexGuide("[a-z]*", BYTES)
    with pytest.raises(LimitError, match="work="):
        AlignedGuide(child, b"a" * 100_000, limits=Limits(work=1000))
    with pytest.raises(LimitError, match="memory="):
        AlignedGuide(child, b"a" * 100_000, limits=Limits(memory=1000))


def test_timers_end_with_their_calls() -> None:
    before = set(threading.enumerate())
    guide = AlignedGuide(RegexGuide("[ab]+", BYTES), b"aba", limits=Limits(seconds=30))
    for left in range(50):
        guide.mask_within(0, left)
        guide.describe(1)
        guide.fits(0, left)
    for timer in set(threading.enumerate()) - before:  # one that was stopped takes a moment to end
        timer.join(20)
        assert not timer.is_alive()


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e300, -1, True])
def test_seconds_that_no_timer_has(seconds: float) -> None:
    with pytest.raises(OptionError, match=r"Limits\.seconds"):
        Limits(seconds=seconds)


class Lying(str):
    """A text that says nothing true about itself."""

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: object) -> str:
        raise RuntimeError("no characters")


def test_texts_are_what_they_hold() -> None:
    guide = ChoiceGuide([Lying("abc"), Lying("xyz")], BYTES)
    assert guide.distance(guide.start) == 3
    assert tokens_of(guide.mask(guide.start)) == [ord("a"), ord("x")]
    assert RegexGuide(Lying("ab"), BYTES).distance(0) == 2
    assert SubstringGuide(Lying("ab"), BYTES).distance(0) == 2
    assert CFGGuide(Lying('start: "ab"'), BYTES).distance(0) == 2


class Silent:
    """Something that cannot even be written."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("value", [Silent(), np.array([1, 2])], ids=["silent", "array"])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Limits(work=value),
        lambda value: Limits(seconds=value),
        lambda value: RegexGuide("a", BYTES, limits=value),
        lambda value: RegexGuide("a", BYTES).to_svg(tokens=value),
        lambda value: RegexGuide("a", BYTES).precompile(value),
        lambda value: SubstringGuide("a b", BYTES, boundary=value),
        lambda value: SubstringGuide("a b", BYTES, whitespace=value),
        lambda value: SubstringGuide("a b", BYTES, min_chars=value),
        lambda value: SubstringGuide("a b", BYTES, none_text=value),
        lambda value: AlignedGuide(RegexGuide("a", BYTES), b"", counts_tail=value),
        lambda value: AlignedGuide(RegexGuide("a", BYTES), value),
        lambda value: GoalGuide(FreeGuide(BYTES), "a", max_states=value),
        lambda value: GoalGuide(value, "a"),
        lambda value: Phrase("a", word=value),
        lambda value: Vocabulary([value], [0]),
        lambda value: BYTES.decode([value]),
    ],
)
def test_odd_options_are_refused_as_such(make: object, value: object) -> None:
    with pytest.raises(OptionError):
        make(value)  # type: ignore[operator]


@pytest.mark.parametrize("ids", [[-1], [-257], [257], ["a"], 5])
def test_what_cannot_be_decoded(ids: object) -> None:
    with pytest.raises(OptionError, match="token ids from 0 to 256"):
        BYTES.decode(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", GUIDES)
def test_copies_of_guides(kind: str) -> None:
    guide = GUIDES[kind]()
    assert copy.copy(guide) is guide
    assert copy.deepcopy([guide])[0] is guide
    other = pickle.loads(pickle.dumps(guide))
    assert (other, hash(other)) == (guide, hash(guide))


@pytest.mark.parametrize("kind", GUIDES)
def test_masks_refuse_to_be_written(kind: str) -> None:
    guide = GUIDES[kind]()
    mask = guide.mask(guide.start)
    with pytest.raises(ValueError, match="read-only"):
        mask[:] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        mask.flags.writeable = True


def test_goals_that_share_parts_are_counted_in_full() -> None:
    shared = reduce(lambda inner, _: AnyOf(inner, Ordered("a", inner)), range(40), Phrase("a"))
    with pytest.raises(LimitError, match="parts"):
        GoalGuide(FreeGuide(BYTES), shared)
    nested = reduce(lambda inner, _: AnyOf(inner, Ordered("a", inner)), range(5), Phrase("a"))
    assert GoalGuide(FreeGuide(BYTES), nested).distance(0) == 1


def test_the_index_of_a_context_counts() -> None:
    with pytest.raises(LimitError, match="memory="):
        SubstringGuide("ab cd " * 10_000, BYTES, limits=Limits(memory=1 << 20))


def test_a_cancelled_block_makes_no_guide() -> None:
    schema = {"type": "string", "maxLength": 7}
    JSONGuide(schema, BYTES)
    with Cancellation() as stop:
        stop.cancel()
        with pytest.raises(Cancelled):
            JSONGuide(schema, BYTES)


@pytest.mark.parametrize("pattern", [r"(?m)(?:^a\n?)*", r"(?m)(?:^a$\n?)*", r"(?m)(?:a$\n?)*", r"(?m)(?:\ba\b\W?)*"])
def test_conditions_whose_states_all_accept(pattern: str) -> None:
    guide = RegexGuide(pattern, BYTES)
    for length in range(6):
        for characters in product("a\n ", repeat=length):
            text = "".join(characters)
            state = guide.read(guide.start, text.encode())
            accepted = state != DEAD and guide.is_accepting(state)
            assert accepted == (re.fullmatch(pattern, text) is not None), text


def test_minimising_keeps_the_language() -> None:
    """Against running both over all short texts: random automata, all states accepting in a third of them."""
    random = np.random.default_rng(0)
    for _ in range(300):
        states, classes = random.integers(1, 7), random.integers(1, 4)
        transitions = random.integers(-1, states, (states, classes)).astype(np.int32)
        accepting = random.random(states) < random.choice([0.3, 0.6, 2.0])
        accepting[random.integers(states)] = True
        fewer, final = minimise(transitions, accepting)
        if not len(final) or not reaches_acceptance(transitions, accepting):
            continue
        for text in product(range(classes), repeat=6):
            for end in range(7):
                assert run(transitions, accepting, text[:end]) == run(fewer, final, text[:end])


def run(transitions: np.ndarray, accepting: np.ndarray, text: tuple[int, ...]) -> bool:
    """Whether an automaton accepts a text from state 0."""
    state = 0
    for kind in text:
        state = transitions[state, kind]
        if state < 0:
            return False
    return bool(accepting[state])


def reaches_acceptance(transitions: np.ndarray, accepting: np.ndarray) -> bool:
    """Whether state 0 reaches an accepting one; if not it is dropped, and another one would be the first."""
    seen = {0}
    for state in (pending := [0]):
        fresh = {int(target) for target in transitions[state] if target >= 0} - seen
        seen |= fresh
        pending += fresh
    return any(accepting[state] for state in seen)


def test_big_states_are_no_states() -> None:
    for kind, make in GUIDES.items():
        guide = make()
        for state in (10**30, np.uint64(2**63), 2**31):
            with pytest.raises(StateError):
                guide.advance(state, 97)
            assert kind


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"": False}},
        {"patternProperties": {"[]$": {"type": "string"}, "": {"type": "integer"}, "^\\s*": {"type": "string"}}},
        {
            "patternProperties": {"": {"type": "integer"}, "^\\s*": {"type": "string"}},
            "dependentRequired": {"a": ["b"]},
        },
        {"patternProperties": {"^a|^[^a]|^$": False}, "maxProperties": 3},
        {"properties": {"a": {}}, "patternProperties": {"^[^a]|^$|^a.": False}},
        {"propertyNames": {"pattern": "[]$"}},
        {"propertyNames": {"pattern": "^a{2}$", "maxLength": 1}},
    ],
)
def test_nothing_is_begun_that_cannot_end(schema: dict[str, object]) -> None:
    """No space is allowed in front of a member where no name is left for one."""
    guide = JSONGuide({"type": "object", **schema}, BYTES, escapes="any")
    seen, pending = {guide.start}, [guide.start]
    while pending and len(seen) < 2000:
        state = pending.pop()
        allowed = tokens_of(guide.mask(state))
        assert allowed
        fresh = {guide.advance(state, token) for token in allowed if token != 256} - seen
        seen |= fresh
        pending += fresh
    assert len(seen) > 2


CONSTANTS = [
    0,
    -0.0,
    7,
    1000,
    10**15,
    10**16,
    12 * 10**15,
    1.5e16,
    1e-4,
    9e-5,
    1e-5,
    2.5e-5,
    449.9,
    -0.5,
    1e300,
    10**300,
]


@pytest.mark.parametrize("value", [*CONSTANTS, 10**300, 123 * 10**40, 5e-324, -1e22, 10**30 + 1])
def test_constants_fit_into_their_distance(value: float) -> None:
    """How long a constant in an object is, is promised before it is written out; a budget may hold no more."""
    guide = JSONGuide({"const": {"a": value}}, BYTES)
    state, text = guide.start, b""
    for left in range(guide.distance(state), 0, -1):
        allowed = tokens_of(mask_within(guide, state, left))
        assert allowed, (text, left)
        state, text = guide.advance(state, allowed[0]), text + bytes(allowed[:1])
    assert guide.is_accepting(state)
    written = json.loads(text, parse_float=Fraction)["a"]
    assert Fraction(written) == Fraction(repr(value))
