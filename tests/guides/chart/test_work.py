"""The work of kernels is counted where it is done, and grows as it should."""

from collections.abc import Callable

import pytest
from trellm import Limits, Vocabulary
from trellm.errors import LimitError
from trellm.guides import CFGGuide, RegexGuide, laws, mask_within

from ..support import LIMIT, LiftedGuide
from ..vocabularies import SMALL

# States with many items, with many entries, and with many origins.
CROWDED = [
    ("[ab]*a[ab]{400}c", b"ab"),
    ("(?:.*a){400}b", b"ba"),
    (3000 * "a?", b"a"),
]
AMBIGUOUS = [
    ('start: p q\np: start "a" | "a"\nq: start? "b" | "b" start', b"ab"),
    ('start: start start "b"? start | "a"', b"a"),
    ('start: x y\nx: "a" x "b"? | "a"\ny: "a" y "c"? | "a"', b"a"),
]


def spent(guide: LiftedGuide, *asked: Callable[[], object]) -> int:
    """The steps of some calls together; each begins anew."""
    total = 0
    for ask in asked:
        ask()
        total += guide.automaton.meter.spent
    return total


@pytest.mark.parametrize(("pattern", "turn"), CROWDED)
def test_work_is_counted(pattern: str, turn: bytes) -> None:
    guide = RegexGuide(pattern, SMALL)
    text = 100 * turn
    assert spent(guide, lambda: guide.read(guide.start, text)) > 10 * len(text)
    state = guide.read(guide.start, text)
    assert spent(guide, lambda: guide.mask(state)) > 100


def test_successors_count_the_nodes_that_they_come_to() -> None:
    guide = RegexGuide("[ab]*", SMALL)
    guide.after_tokens(guide.start)
    nodes = sum(set(text) <= set(b"ab") for text in SMALL.tokens if text)
    assert spent(guide, lambda: guide.after_tokens(guide.start)) >= nodes


@pytest.mark.parametrize(("grammar", "turn"), AMBIGUOUS)
def test_ambiguous_states_take_no_more_than_the_square_of_the_text(grammar: str, turn: bytes) -> None:
    """They took the fourth power."""
    guide = CFGGuide(grammar, SMALL)
    state, most = guide.start, []
    for times in (50, 50, 100):
        state = guide.read(state, times * turn)
        most.append(spent(guide, lambda: guide.mask(state), lambda: guide.read(state, 2 * turn)))  # noqa: B023
    assert 0 < most[2] < 6 * most[1]


@pytest.mark.parametrize("work", [100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize(("grammar", "turn"), AMBIGUOUS)
def test_a_guide_is_as_it_was_after_a_limit(grammar: str, turn: bytes, work: int) -> None:
    guide, other = CFGGuide(grammar, SMALL), CFGGuide(grammar, SMALL)
    meter = guide.automaton.meter
    meter.counts[LIMIT] = work
    state, place = guide.start, other.start
    refused = False
    for byte in 60 * turn:
        for ask in (guide.mask, guide.distance, lambda state: mask_within(guide, state, 5)):
            try:
                ask(state)
            except LimitError:
                refused = True
        meter.counts[LIMIT] = Limits().work
        assert guide.mask(state).tobytes() == other.mask(place).tobytes()
        assert guide.distance(state) == other.distance(place)
        state, place = guide.advance(state, byte), other.advance(place, byte)
        meter.counts[LIMIT] = work
    assert refused == (work < 100_000)
    meter.counts[LIMIT] = Limits().work
    laws.check_state(guide, state, laws.Random(0), 40)


def test_a_search_among_tokens_is_counted() -> None:
    """The tokens hold three brackets each, and the shortest texts of the language have no such number."""
    vocabulary = Vocabulary([b"[[[", b"]]]", b"[[]", b"x", None], [4])
    with pytest.raises(LimitError, match="more than 50,000 steps"):
        CFGGuide('start: "[[" start "]]" | "x" start "x" | "y"', vocabulary, limits=Limits(work=50_000))


def test_room_does_not_grow_with_what_was_given_out() -> None:
    """What is not asked for any more is given up as often after a long text: the chart had ten times as much."""
    guide = CFGGuide('start: "a" start "a" | "b" start "b" |', SMALL)
    state = guide.start
    for _ in range(2000):
        state = guide.advance(state, b"a"[0])
        guide.mask(state)
    assert guide.automaton.evicted > 1000
    assert guide.automaton.chart.words.nbytes < 16 << 20
