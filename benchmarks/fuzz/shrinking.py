"""A smaller case that goes wrong in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cases import Case, run_gbnf, run_lark, run_regex, run_schema, shown
from inputs.mutation import copied, places_in
from pool import run_range
from verdicts import Outcome, judged

MAX = 2000
"""How many cases are tried."""


def shrink(fuzzer: Any, number: int, seconds: float) -> str:
    """The smallest constraint found that has the same verdict and error as a case, in words."""

    def outcome_of(replacement: Any) -> Outcome:
        def run(_: int) -> Outcome:
            case = fuzzer.case(number)
            case.replacement = replacement
            return judged(case, number)

        return next(iter(run_range(run, range(number, number + 1), seconds=seconds)))

    case = fuzzer.case(number)
    if case.kind not in ("regex", "schema", "lark", "gbnf"):
        return f"a case of kind {case.kind} cannot be made smaller"
    original = drawn(case)
    first = outcome_of(original)
    best, tries = original, 0
    improved = True
    while improved and tries < MAX:
        improved = False
        for smaller in list(_smaller(best)):
            tries += 1
            found = outcome_of(smaller)
            if (found.verdict, found.error) == (first.verdict, first.error):
                best, improved = smaller, True
                break
            if tries >= MAX:
                break
    return f"{first.verdict} {first.error} {first.message[:200]}\n{shown(best, 5000)}"


def drawn(case: Case) -> Any:
    """What the case is made of, without making it."""

    class Drawn(Exception):  # noqa: N818
        pass

    def stop(given: Any, *_: Any) -> None:
        case.given = given
        raise Drawn

    case.note = stop  # type: ignore[method-assign]
    run = {"regex": run_regex, "schema": run_schema, "lark": run_lark, "gbnf": run_gbnf}[case.kind]
    with suppress(Drawn):
        run(case, None)  # type: ignore[arg-type]
    return case.given


def _smaller(given: Any) -> Iterator[Any]:
    if isinstance(given, str):
        step = max(1, len(given) // 2)
        while step:
            for begin in range(0, len(given), step):
                yield given[:begin] + given[begin + step :]
            step //= 2
        return
    count = len(list(places_in([given])))
    for index in range(count):
        holder = [copied(given)]
        inside, key = list(places_in(holder))[index]
        if inside is not holder:
            del inside[key]
            yield holder[0]
        elif isinstance(given, (dict, list)):
            yield from (given.values() if isinstance(given, dict) else given)
