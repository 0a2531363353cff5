"""Alternatives of objects that lie within others: told by sets of numbers as by comparing each with each."""

from __future__ import annotations

from random import Random

import pytest
from trellm.guides.json_schema.algebra import absorption, objects
from trellm.guides.json_schema.algebra.absorption import absorbed
from trellm.guides.json_schema.algebra.cases import Object, Rule, String
from trellm.guides.json_schema.algebra.formula import EVERYTHING, NOTHING, Formulas

FORMULAS = Formulas()
WRONG = [FORMULAS.negation(FORMULAS.values([number])) for number in range(3)]
VALUES = [EVERYTHING, NOTHING, *WRONG, FORMULAS.all_of(WRONG[:2]), FORMULAS.all_of(WRONG)]
RULES = [Rule(String(patterns=frozenset("a")), WRONG[0]), Rule(String(), WRONG[1])]


def any_case(random: Random) -> Object:
    properties = {name: random.choice(VALUES) for name in "abc" if random.random() < 0.6}
    return Object(
        properties,
        tuple(rule for rule in RULES if random.random() < 0.2),
        frozenset(name for name in properties if random.random() < 0.3),
        tuple(rule for rule in RULES if random.random() < 0.2),
        random.choice((0, 0, 1, 2)),
        random.choice((None, None, 2, 3)),
    )


@pytest.mark.parametrize("few", [0, 6, 24])
def test_what_is_left_covers_everything_and_nothing_of_it_is_covered(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absorption, "FEW_PAIRS", few)
    random = Random(1)
    left_out = 0
    for _ in range(1000):
        cases = [any_case(random) for _ in range(random.randrange(1, 12))]
        kept = absorbed(cases)
        assert all(any(objects.covers(one, case) for one in kept) for case in cases)
        assert not any(objects.covers(other, one) for one in kept for other in kept if other is not one)
        left_out += len(cases) - len(kept)
    assert left_out > 1000


def closed_case(random: Random) -> Object:
    case = any_case(random)
    names = [frozenset(name for name in "abcd" if random.random() < 0.7) for _ in range(random.choice((0, 1, 1, 2)))]
    closing = tuple(Rule(String(excluded=each), NOTHING) for each in names)
    return Object(case.properties, (*case.rules, *closing), case.required)


def test_pairs_tell_of_closed_objects_what_words_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)
    found: list[list[set[int]]] = []
    many = [[closed_case(random) for _ in range(random.randrange(1, 9))] for _ in range(1000)]
    for few in (0, 24):
        monkeypatch.setattr(absorption, "FEW_PAIRS", few)
        found.append([{id(one) for one in absorbed(cases)} for cases in many])
    by_words, by_pairs = found
    assert [len(kept) for kept in by_words] == [len(kept) for kept in by_pairs]
    assert sum(map(len, by_pairs)) < 0.8 * sum(map(len, many))
