"""The shortest texts of rules: as by rounds over all rules, and as numbers, however long the texts."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Limits
from trellm.guides.grammar import Alternation, Chars, Literal, Reference, Repeat, Sequence
from trellm.guides.grammar.grammar import shortest_texts

from ..support import NEVER, Meter, Node

NAMES = ("a", "b", "c", "q")


def nodes() -> st.SearchStrategy[Node]:
    leaves = st.sampled_from(
        [Literal(b""), Literal(b"x"), Literal(b"xyz"), Chars(((0xE9, 0xE9),)), Chars(()), *map(Reference, NAMES)]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple).map(Sequence),
            st.lists(inner, max_size=3).map(tuple).map(Alternation),
            st.builds(lambda item, least: Repeat(item, least, None), inner, st.sampled_from([0, 1, 2, 1 << 20])),
        ),
        max_leaves=8,
    )


def by_rounds(rules: Mapping[str, Node], known: Mapping[str, int]) -> dict[str, int]:
    lengths = {**known, **dict.fromkeys(rules, NEVER)}
    while True:
        found = {**lengths, **{name: min(lengths[name], naive_length(body, lengths)) for name, body in rules.items()}}
        if found == lengths:
            return lengths
        lengths = found


def naive_length(node: Node, lengths: Mapping[str, int]) -> int:
    match node:
        case Literal(data):
            return len(data)
        case Chars(ranges):
            return min((len(chr(low).encode()) for low, _ in ranges), default=NEVER)
        case Sequence(items):
            return min(NEVER, sum(naive_length(item, lengths) for item in items))
        case Alternation(items):
            return min((naive_length(item, lengths) for item in items), default=NEVER)
        case Repeat(item, least, _):
            return min(NEVER, least * naive_length(item, lengths)) if least else 0
        case Reference(name):
            return lengths[name]
        case _:
            raise AssertionError(node)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(nodes(), nodes(), nodes())
def test_as_by_rounds(a: Node, b: Node, c: Node) -> None:
    rules = {"a": a, "b": b, "c": c}
    found = shortest_texts(rules, {"q": 2})
    assert {name: found.get(name, NEVER) for name in NAMES} == by_rounds(rules, {"q": 2})


def test_texts_that_are_too_long_to_be_counted() -> None:
    rules: dict[str, Node] = {"r0": Literal(b"x")}
    for i in range(60):
        rules[f"r{i + 1}"] = Sequence((Reference(f"r{i}"), Reference(f"r{i}")))
    found = shortest_texts(rules, {})
    assert found["r29"] == 1 << 29
    assert found["r30"] == found["r60"] == NEVER


def test_the_work_grows_with_the_grammar_whatever_the_order_of_its_rules() -> None:
    """Rules that refer to each other in no order took as many rounds as there are rules."""
    count = 3001
    rules: dict[str, Node] = {
        f"r{i}": Alternation((Sequence((Reference(f"r{(i * 7919 + 1) % count}"), Literal(b"a"))), Literal(b"b" * i)))
        for i in range(count)
    }
    meter = Meter(Limits(work=2_000 * count))
    with meter:
        shortest_texts(rules, {})
    assert meter.spent > count
