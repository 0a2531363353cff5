"""Alternatives of objects that lie within others: told by sets of numbers as by comparing each with each."""

from __future__ import annotations

from random import Random

from ..support import EVERYTHING, NOTHING, Formula, Formulas, Object, Rule, String, absorbed, objects

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


def test_what_is_left_covers_everything_and_nothing_of_it_is_covered() -> None:
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


def holds(formula: Formula, value: int) -> bool:
    if formula.kind == "all":
        return all(holds(part, value) for part in formula.parts)
    return formula is EVERYTHING or (formula.kind == "not" and value not in formula.parts[0].subject)


def has(case: Object, members: dict[str, int]) -> bool:
    asked = [(name, case.properties.get(name, EVERYTHING)) for name in members]
    asked += [
        (name, rule.formula)
        for rule in case.rules
        for name in members
        if name not in rule.names.excluded and (not rule.names.patterns or "a" in name)
    ]
    return case.required <= members.keys() and all(holds(formula, members[name]) for name, formula in asked)


def test_what_is_left_of_closed_objects_has_all_members_that_there_were() -> None:
    random = Random(2)
    left_out = 0
    for _ in range(300):
        cases = [closed_case(random) for _ in range(random.randrange(1, 9))]
        kept = absorbed(cases)
        left_out += sum(
            not any(objects.covers(one, case) for one in kept if one is not case) for case in cases if case not in kept
        )
        for _ in range(30):
            members = {name: random.randrange(4) for name in "abcd" if random.random() < 0.5}
            assert any(has(case, members) for case in cases) == any(has(case, members) for case in kept)
    assert left_out > 30, "those that only closing tells are left out, too"
