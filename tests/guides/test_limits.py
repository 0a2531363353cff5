"""Input that asks for too much: errors that say so at once, or plain work in proportion."""

import tracemalloc

import pytest
from trellm import Vocabulary
from trellm.errors import LanguageError, LimitError, PatternError, TrellmError
from trellm.guides import ChoiceGuide, JSONGuide, RegexGuide, laws, tokens_of

from .support import LIMIT, NotReadyError, quickly
from .vocabularies import SMALL


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1000}{1000}",
        "(" * 60_000 + ")" * 60_000,
        "(?:" * 60_000 + "a" + ")" * 60_000,
        "[" * 60_000,
        "(?=" * 60_000,
        "a{0,3000000000}",
        "a{9999999999999999999999}",
        "(?=[ab]*a[ab]{30}c)[ab]*b[ab]{30}c",
    ],
)
def test_sizes_beyond_all_limits(pattern: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((LimitError, PatternError)) as caught:
            RegexGuide(pattern, SMALL)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000
    assert peak < 200 << 20


@pytest.mark.parametrize("pattern", ["(?:(?:a{200}b){200}c){200}", "(?:a{60000}|b{60000}){60000}"])
def test_counts_are_not_written_out(pattern: str) -> None:
    guide = RegexGuide(pattern, Vocabulary.from_bytes())
    assert tokens_of(guide.mask(guide.start)) == ([97] if pattern.startswith("(?:(?:") else [97, 98])
    state = guide.automaton.read(guide.start, b"a" * 200)
    assert tokens_of(guide.mask(state)) == [98 if pattern.startswith("(?:(?:") else 97]
    assert guide.automaton.graph.node_count < 100


def test_exponential_automata_work_as_long_as_nobody_wants_them_whole() -> None:
    guide = RegexGuide("[ab]*a[ab]{30}", SMALL)
    with pytest.raises(LimitError, match="50,000 states"):
        guide.precompile()
    for text in (b"ab" * 40, b"b" * 31, b"a" + b"b" * 30):
        state = guide.start
        for byte in text:
            assert laws.allows(guide.mask(state), byte)
            state = guide.advance(state, byte)
        assert guide.is_accepting(state) == (text[-31:-30] == b"a")
    assert guide.distance(guide.start) == 1  # the token of 60 a


def test_precompiling_more_states_than_rows_are_kept() -> None:
    guide = RegexGuide("a{0,9000}b", SMALL).precompile()
    assert guide.automaton.state_count == 9002
    assert tokens_of(guide.mask(guide.start))


def test_counts_near_the_largest() -> None:
    guide = RegexGuide("[ab]{3,60000}", SMALL)
    state = guide.automaton.read(guide.start, b"ab" * 29_995)
    assert guide.is_accepting(state)
    state = guide.automaton.read(state, b"ab" * 5)
    assert tokens_of(guide.mask(state)) == sorted(SMALL.eos_ids)


@pytest.mark.parametrize("pattern", [r"[^\s\S]", r"a(?!)", r"(?=a)b", "[^\x00-\U0010ffff]", r"\bx\b\b\By", "$a"])
def test_empty_languages(pattern: str) -> None:
    with pytest.raises(LanguageError, match="empty"):
        RegexGuide(pattern, SMALL)


def test_a_great_many_long_choices() -> None:
    choices = [f"{number:06d}" + "x" * (number % 50) for number in range(20_000)]
    guide = ChoiceGuide(choices, SMALL)
    state = guide.automaton.read(guide.start, choices[777].encode())
    assert guide.is_accepting(state)


@pytest.mark.parametrize("pattern", ["(", "a**", "[b-a]", r"\1", "(?P<n>a)(?P=n)", "a+++", r"\p{Nonsense}"])
def test_malformed_patterns_are_errors_of_ours(pattern: str) -> None:
    with pytest.raises(TrellmError) as caught:
        RegexGuide(pattern, SMALL)
    assert isinstance(caught.value, PatternError) and "^" in str(caught.value).splitlines()[-1]


def test_what_is_not_quick_is_put_off_and_changes_nothing() -> None:
    vocabulary = Vocabulary.from_bytes()
    pattern = "(?:[ab]{1,9}c|[bc]{2,8}a){3,20}"
    guide, other = (RegexGuide(pattern, vocabulary) for _ in range(2))
    with quickly(3):
        with pytest.raises(NotReadyError):
            guide.mask(guide.start)
        with pytest.raises(NotReadyError):
            guide.distance(guide.start)
    state, same = guide.start, other.start
    for byte in b"abcbba":
        assert guide.mask(state).tolist() == other.mask(same).tolist()
        assert guide.distance(state) == other.distance(same)
        state, same = guide.advance(state, byte), other.advance(same, byte)
    with quickly(1):
        assert guide.mask(guide.start).tolist() == other.mask(other.start).tolist(), "what is known is quick"


def test_parts_that_are_not_defined_yet_are_not_quick() -> None:
    # What is small is defined before it is reached.
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x{2,5}$"}}, "required": ["a"]}
    vocabulary = Vocabulary.from_bytes()
    guide, put_off = JSONGuide(schema, vocabulary, whitespace="compact"), 0
    state = guide.start
    for byte in b'{"a":"xx':
        with quickly(10**9):
            try:
                guide.mask(state)
            except NotReadyError:
                put_off += 1
        assert laws.allows(guide.mask(state), byte)
        state = guide.advance(state, byte)
    assert put_off


def test_a_limit_holds_where_quick_answers_are_asked_for() -> None:
    guide = RegexGuide("(?:[ab]{1,9}c|[bc]{2,8}a){3,20}", Vocabulary.from_bytes())
    counts = guide.automaton.meter.counts
    counts[LIMIT] = 5
    with quickly(10**9), pytest.raises(LimitError):
        guide.mask(guide.start)
    counts[LIMIT] = 10**6
    with quickly(2), pytest.raises(NotReadyError):
        guide.mask(guide.start)
    assert counts[LIMIT] == 10**6, "a call that is to be quick leaves the limit as it was"
