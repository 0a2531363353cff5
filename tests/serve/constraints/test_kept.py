"""What is remembered of constraints: how much that is, with what was asked for."""

import asyncio

import pytest
from trellm import AnyOf, Phrase
from trellm.errors import OptionError
from trellm.serve import Settings

from ..support import COPIES, ConstraintCompiler, ConstraintSpec, Metrics, RefusalCache, key_bytes


def test_what_was_asked_for_weighs_as_well() -> None:
    """A schema of megabytes may come to a guide of nothing."""
    goals = (AnyOf(Phrase("b" * 1000), Phrase("c" * 1000)),)
    assert COPIES * 2900 < key_bytes(("plan", ConstraintSpec("regex", "a" * 1000, goals=goals), 7)) < COPIES * 4000

    async def run() -> None:
        made = ConstraintCompiler(Settings(kept_bytes=100_000), Metrics().of("small"))
        for number in range(50):
            await made.compile((str(number) * 1000, ConstraintSpec("regex", "a" * 1000)), lambda: 7, lambda value: 1)
        assert 5 < len(made._cache) < 50 and made._held <= 100_000
        made.close()

    asyncio.run(run())


def test_refusals_are_bounded_by_what_they_hold() -> None:
    """And remembered without the frames that they went through, in which there is all of a request."""
    refusals = RefusalCache(100_000)
    for number in range(50):
        refusals.add(("plan", str(number) * 1000), OptionError(str(number)))
        refusals.add(("plan", str(number) * 1000), OptionError(str(number)))
    refusals.check(("plan", "0" * 1000))
    assert refusals._held <= 100_000 < refusals._held + 10_000
    caught: list[BaseException] = []
    for _ in range(2):
        with pytest.raises(OptionError, match="49") as again:
            refusals.check(("plan", "49" * 1000))
        caught.append(again.value)
    assert caught[0] is not caught[1]
    refusals.add("large", OptionError("a" * 200_000))
    refusals.check("large")
    assert refusals._held == 0
