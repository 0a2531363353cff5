"""The chart against a slow recogniser, over random constraints made of every kind of syntax node."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trellm import Limits, Vocabulary
from trellm.errors import LanguageError, LimitError
from trellm.guides import DEAD, RegexGuide
from trellm.guides.grammar import Alternation, Chars, Grammar, Literal, Reference, Repeat, Sequence, check

from ..support import ChartAutomaton, Graph, LiftedGuide, Lowering, Meter, Node, Table, automaton_of, least_texts
from .naive_grammar import accepts, viable

NAMES = ("start", "x", "y")
TEXTS = [bytes(letters) for size in range(5) for letters in product(b"ab", repeat=size)]
A, B = Literal(b"a"), Literal(b"b")


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Byte automata over a and b in which every state reaches an accepting one."""
    count = draw(st.integers(1, 3))
    transitions = np.full((count, 256), -1, np.int32)
    for state in range(count):
        transitions[state, ord("a") : ord("b") + 1] = [draw(st.integers(-1, count - 1)) for _ in "ab"]
    accepting = np.array([draw(st.booleans()) for _ in range(count)])
    alive = accepting.copy()
    for _ in range(count):
        alive |= ((transitions >= 0) & alive[transitions]).any(axis=1)
    assume(alive.all())
    return Table(transitions, accepting, draw(st.integers(0, count - 1)))


def nodes() -> st.SearchStrategy[Node]:
    leaves = st.one_of(
        st.sampled_from([Literal(text) for text in (b"a", b"b", b"ab", b"", b"aab")]),
        st.sampled_from([Chars(((97, 97),)), Chars(((97, 98),)), Chars(())]),
        st.builds(Reference, st.sampled_from(NAMES)),
        tables(),
    )
    return st.recursive(leaves, _combined, max_leaves=6)


def _combined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, max_size=4).map(tuple)
    counts = st.sampled_from([(0, 1), (0, None), (1, None), (2, None), (0, 2), (1, 3), (2, 2), (3, 4), (0, 0)])
    repeats = st.builds(lambda item, bounds: Repeat(item, *bounds), inner, counts)
    return st.builds(Sequence, several) | st.builds(Alternation, several) | repeats


def assert_agrees(grammar: Grammar, texts: list[bytes]) -> None:
    automaton = automaton_of(grammar)
    for text in texts:
        state = automaton.read(automaton.start, text)
        assert (state >= 0) == viable(grammar, text), text
        assert (state >= 0 and automaton.is_accepting(state)) == accepts(grammar, text), text


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.tuples(nodes(), nodes(), nodes()))
def test_random_grammars(bodies: tuple[Node, Node, Node]) -> None:
    grammar = Grammar(dict(zip(NAMES, bodies, strict=True)), "start")
    try:
        check(grammar)
    except LanguageError:
        assume(False)
    assert_agrees(grammar, TEXTS)


@pytest.mark.parametrize(
    "body",
    [
        Repeat(Literal(b"ab"), 2, 2),
        Repeat(Sequence((Repeat(A, 0, 2), Repeat(B, 1, 2))), 2, 3),
        Repeat(Repeat(Repeat(A, 1, 2), 1, 2), 2, 2),
        Sequence((Repeat(Alternation((A, Literal(b"aa"))), 2, 3), B)),
        Sequence((Repeat(Reference("empty"), 3, 5), B)),
        Sequence((Repeat(Alternation((Reference("empty"), A)), 2, 3), B)),
        Repeat(Sequence((Repeat(A, 2, None), B)), 0, 2),
        Alternation((Sequence((Reference("start"), Reference("start"))), A, Literal(b""))),
        Sequence((Repeat(A, 0, None), Repeat(A, 0, 2), Repeat(A, 2, None))),
    ],
)
def test_counted_and_empty_turns(body: Node) -> None:
    texts = [*TEXTS, *(bytes(letters) for letters in product(b"ab", repeat=6)), b"a" * 9, b"aab" * 3]
    assert_agrees(Grammar({"start": body, "empty": Repeat(B, 0, 1)}, "start"), texts)


def test_a_rule_that_is_empty_where_it_was_empty_before() -> None:
    """Called again behind itself it goes on at once: there is nothing new to read in it."""
    around = Alternation((Sequence((A, Reference("around"), B)), Literal(b"")))
    twice = Sequence((Reference("around"), Reference("around"), A))
    assert_agrees(Grammar({"start": twice, "around": around}, "start"), TEXTS)


def automaton_for(node: Node) -> ChartAutomaton:
    graph = Graph()
    return ChartAutomaton(graph, Lowering(graph).rule(node))


def test_a_bounded_repeat_has_one_state_a_turn_and_few_nodes() -> None:
    graph = Graph()
    automaton = ChartAutomaton(graph, Lowering(graph).rule(Repeat(Chars(((97, 122),)), 0, 1000)))
    assert graph.node_count < 10
    assert len(automaton.explore(2000)) == 1001


@pytest.mark.parametrize("text", [b"a" * 500, b"(" * 200])
def test_prefixes_with_the_same_future_share_their_state(text: bytes) -> None:
    """Right recursion, left recursion and a loop: one state for any number of turns."""
    right = Grammar({"start": Alternation((Sequence((A, Reference("start"))), A))}, "start")
    left = Grammar({"start": Alternation((Sequence((Reference("start"), A)), A))}, "start")
    loop = Grammar({"start": Repeat(A, 1, None)}, "start")
    for grammar in (right, left, loop):
        automaton = automaton_of(grammar)
        state = automaton.read(automaton.start, text)
        assert (state >= 0) == (text[:1] == b"a")
        assert automaton.state_count <= 3


def test_long_literals_and_thousands_of_alternatives() -> None:
    literals = [str(number * number).encode() for number in range(3000)]
    automaton = automaton_for(Alternation((Literal(b"x" * 20_000), *map(Literal, literals))))
    for text in (b"x" * 20_000, *literals[::100]):
        assert automaton.is_accepting(automaton.read(automaton.start, text))
    assert automaton.read(automaton.start, b"x" * 20_001) < 0


def test_dropping_rows_changes_nothing() -> None:
    node = Sequence((Repeat(Alternation((A, Literal(b"ba"))), 5, 90), B))
    graph = Graph()
    small = ChartAutomaton(graph, Lowering(graph).rule(node), max_rows=64)
    large = automaton_for(node)
    for text in (b"a" * 50, b"ba" * 30, b"aba" * 20 + b"b", b"b" * 5):
        ends = [automaton.read(automaton.start, text) for automaton in (small, large)]
        assert [end >= 0 for end in ends] in ([True] * 2, [False] * 2)
        if ends[0] >= 0:
            accepting = [automaton.is_accepting(end) for automaton, end in zip((small, large), ends, strict=True)]
            assert accepting[0] == accepting[1]
    assert small.held_bytes < large.held_bytes, "rows were dropped"
    assert small.explore(10_000) == large.explore(10_000) and small.state_count > 100


def test_each_compaction_follows_new_words_in_proportion() -> None:
    """The words that are kept grow slowly, and rows fill up soon: neither brings the next compaction on."""
    single = Vocabulary.from_bytes()
    vocabulary = Vocabulary([*single.tokens, b"a" * 16], single.eos_ids)
    graph = Graph()
    rule = Lowering(graph).rule(Repeat(A, 0, 100_000))
    guide = LiftedGuide(ChartAutomaton(graph, rule, max_words=1 << 15), vocabulary)
    state, compactions = guide.start, [guide.automaton.last_compaction]
    for _ in range(6000):
        state = guide.advance(state, len(vocabulary.tokens) - 1)
        if guide.automaton.last_compaction is not compactions[-1]:
            compactions.append(guide.automaton.last_compaction)
    assert 10 < len(compactions) < 40
    assert guide.automaton.evicted > 1000


def test_only_memory_that_was_written_to_is_weighed() -> None:
    automaton = automaton_for(Repeat(Alternation((A, Literal(b"ba"))), 5, 90))
    at_first = automaton.held_bytes
    assert at_first < 400_000
    automaton.read(automaton.start, b"a" * 50)
    after_some = automaton.held_bytes
    assert 40 * 1024 < after_some - at_first < 80 * 1024, "a row of 1 KiB for each state"
    count = len(automaton.explore(10_000))
    assert automaton.held_bytes - at_first > 1024 * (count - 1)
    automaton.collect()
    assert automaton.held_bytes < after_some


def test_limits_are_errors() -> None:
    with pytest.raises(LanguageError, match="empty"):
        automaton_for(Alternation(()))
    with pytest.raises(LanguageError, match="empty"):
        automaton_for(Sequence((A, Chars(()))))
    with Meter(Limits(memory=1 << 20)), pytest.raises(LimitError, match=r"more than 1 MiB .* raise memory="):
        Lowering(Graph()).rule(Literal(b"a" * 50_000))
    with Meter(Limits(work=10_000)), pytest.raises(LimitError, match=r"more than 10,000 steps .* raise work="):
        Lowering(Graph()).rule(Literal(b"a" * 50_000))
    with pytest.raises(LimitError, match="more than 50 states"):
        automaton_for(Repeat(A, 0, 200)).explore(50)
    deep: Node = A
    for _ in range(400):
        deep = Sequence((A, deep))
    with pytest.raises(LimitError, match="nested"):
        automaton_for(deep)


@pytest.mark.parametrize("pattern", ["[ab]{3}", "[a-c]x|[a-z]{2}", "a[0-9]*", "(ab|ac|bb)c?", ""])
def test_the_texts_that_lead_on_are_no_fewer_than_said(pattern: str) -> None:
    """`least_texts` against all texts of some letters, one letter after the other."""
    automaton = RegexGuide(pattern, Vocabulary.from_bytes()).automaton
    letters, most = b"abcxz01", 1 << 40
    wanted = np.zeros(256, np.uint8)
    wanted[list(letters)] = 1
    levels = [[automaton.start]]
    for _ in range(3):
        after = [automaton.transitions(state)[list(letters)] for state in levels[-1]]
        levels.append([state for each in after for state in each.tolist() if state != DEAD])
    for steps in range(4):
        found = automaton.run(least_texts, automaton.start, wanted, steps, most)
        texts = max(len(level) for level in levels[: steps + 1])
        is_endless = any(state in automaton.transitions(state).tolist() for level in levels for state in level)
        assert 1 <= found <= texts or (is_endless and found == most)
