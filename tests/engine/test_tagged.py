"""Tagged text through the engine: batches, beams, samples, healing, budgets, and markers that are special tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from trellm import Beam, BudgetError, Generator, Sample, Vocabulary, generate, models
from trellm.guides import JSONGuide, RegexGuide, TaggedGuide

from .support import Part

BEGIN, END, EOS = 256, 257, 259
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), None, None, b"<t>", None], [EOS], [BEGIN, END])
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": False}


def scores(ids: Sequence[int]) -> list[float]:
    """Likes to say "ok", then to call; what comes is a function of the tokens so far."""
    seed = sum((place + 1) * token for place, token in enumerate(ids)) % 1009
    found = [((token * 7919 + seed * 104729) % 1000) / 250 for token in range(VOCABULARY.size)]
    for token in (*b'ok {}":a12', BEGIN, END):
        found[token] += 3
    return found


MODEL = models.from_function(scores, VOCABULARY)
CALL = JSONGuide(SCHEMA, VOCABULARY)
GUIDE = TaggedGuide([(BEGIN, CALL, END), ("<t>", RegexGuide("[0-9]{2}", VOCABULARY), "")], VOCABULARY, least=1, most=2)


def check(result: Any) -> list[Part]:
    """The parts of a result that must be complete, in the guide's own words and by other means."""
    assert result.finish_reason == "complete"
    state = GUIDE.start
    for token in result.token_ids:
        state = GUIDE.advance(state, token)
    assert GUIDE.is_accepting(state)
    parts = GUIDE.parts(result.token_ids)
    called = [part for part in parts if part.tag is not None]
    assert 1 <= len(called) <= 2
    for part in called:
        assert json.loads(part.text)["a"] in (1, 22) if part.tag == 0 else part.text.isdigit()
    assert "".join(part.text for part in parts) == result.text.replace("<t>", "")
    return parts


@pytest.mark.parametrize("search", [Sample(n=3), Beam(3, n=2)], ids=repr)
@pytest.mark.parametrize("most", [24, 60])
def test_every_search_is_complete_within_its_budget(search: Any, most: int) -> None:
    results = Generator(MODEL, GUIDE).run(["a", "b c", "<t"], search=search, seed=5, max_tokens=most)
    for entry in results:
        for result in entry:
            check(result)


def test_alone_and_in_a_batch() -> None:
    generator = Generator(MODEL, GUIDE)
    together = generator.run(["a", "b c", "xyz"], max_tokens=40)
    assert [each.token_ids for each in together] == [
        generator.run(prompt, max_tokens=40).token_ids for prompt in ("a", "b c", "xyz")
    ]
    for each in together:
        check(each)


def test_a_prompt_that_ends_inside_a_marker_is_healed() -> None:
    """The prompt's "<t" is generated again, as the token "<t>" too, which then is the text's and not the marker."""
    result = Generator(MODEL, GUIDE).run("say <t", max_tokens=30)
    check(result)


def test_the_budget_is_known_beforehand() -> None:
    fewest = GUIDE.distance(GUIDE.start)
    assert fewest == len("<t>") - 2 + 2
    check(Generator(MODEL, GUIDE).run("a", max_tokens=fewest))
    with pytest.raises(BudgetError):
        Generator(MODEL, GUIDE)("a", max_tokens=fewest - 1)


def test_with_other_generators_and_goals() -> None:
    generator = Generator(MODEL, GUIDE)
    tagged, digit = generate.batch([(generator, "a"), (generate.regex(MODEL, "[0-9]"), "a")], max_tokens=30)
    assert isinstance(tagged, str)
    assert digit.isdigit()
    result = generator.run("a", max_tokens=60, include="zebra")
    check(result)
    assert "zebra" in result.text
