"""Rows that go on from known state to known state: what they do is what they would do by asking each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Generator, Greedy, Sample, generate

from ...thresholds import thresholds
from ..machines import TABLE, VOCABULARY, letters_model, machines
from ..support import AllowedTokens, StateTable

Said = list[tuple[tuple[int, ...], str, str]]


def said(generator: Any, asking: bool, **options: Any) -> Said:
    """Results of three prompts, twice, so that the second time most states are known; `asking` each time, or not.

    Texts of which log-probabilities are recorded ask for each of their tokens.
    """
    options |= {"heal": False, "progress": False, "logprobs": asking}
    found = [each for _ in range(2) for each in generator.run(["a", "ab", "c"], **options)]
    flat = [one for each in found for one in (each if isinstance(each, list) else [each])]
    return [(tuple(each.token_ids), each.text, each.finish_reason) for each in flat]


@given(
    machines(),
    st.integers(0, 12),
    st.sampled_from([Greedy(), Sample(temperature=2.0, n=4), Sample(top_k=2)]),
    st.booleans(),
    st.sets(st.integers(0, 4), max_size=1),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_texts_are_the_same(
    table_guide: Any,
    machine: tuple[list[dict[int, int]], set[int]],
    spare: int,
    search: Any,
    listed: bool,
    stop_ids: set[int],
) -> None:
    """Forced tokens, budgets that get tight, few tokens allowed; free texts with stop ids."""
    guide = table_guide(VOCABULARY, *machine)
    some = (lambda ids, tokens: TABLE[ids[-1], list(tokens)]) if listed else None
    model = letters_model(some_logits=some)
    options = {
        "max_tokens": guide.distance(guide.start) + spare + 1,
        "search": search,
        "seed": spare,
    }
    known, asked = (said(Generator(model, guide), asking, **options) for asking in (False, True))
    assert known == asked
    free, options = generate.text(model), {**options, "stop_ids": sorted(stop_ids)}
    assert said(free, False, **options) == said(free, True, **options)


def test_much_is_followed(table_guide: Any) -> None:
    """The second of two equal texts asks nothing but at its end; forced tokens come with those before them."""
    likely, other = sorted((3, 4), key=lambda token: -TABLE[2, token])
    guide = table_guide(VOCABULARY, [{0: 1, 1: 1}, {2: 2}, {likely: 0, other: 3}, {}], {3})
    generator = Generator(letters_model(), guide)
    generator("a", max_tokens=60, heal=False)
    guide.asked.clear()
    text = generator.run("a", max_tokens=60, heal=False)
    assert len(text.token_ids) > 40 and len(guide.asked) < len(text.token_ids) / 3


def test_a_state_is_looked_at_once_whichever_way_texts_come_to_it(table_guide: Any) -> None:
    """Eight states behind one another, each by any of four letters; 20 texts that go different ways."""
    guide = table_guide(VOCABULARY, [*({0: i, 1: i, 2: i, 3: i} for i in range(1, 9)), {}], {8})
    generator = Generator(letters_model(), guide)
    texts: Any = generator.run("a", search=Sample(temperature=5.0, n=20), seed=1, max_tokens=60, heal=False)
    assert len({text.text for text in texts}) == 20
    # Texts that come to a state in the same step ask together, before it is known.
    inner = [state for state in guide.asked if 0 < state < 7]
    assert set(inner) == set(range(1, 7)) and len(inner) < 60


def test_what_takes_too_much_room_is_forgotten(table_guide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = table_guide(VOCABULARY, [{0: 1, 1: 1, 2: 0}, {2: 2, 0: 0}, {3: 0, 4: 0}], {0})
    expected = said(Generator(letters_model(), guide), True, max_tokens=30)
    thresholds(monkeypatch, bytes_of_known_states=1500)
    asked = len(guide.asked)
    guide.asked.clear()
    assert said(Generator(letters_model(), guide), False, max_tokens=30) == expected
    assert 0 < len(guide.asked) < asked


def test_equal_masks_are_one() -> None:
    states = StateTable(lambda state, token: state + token)
    first, second, other = (states.of(number, frozenset()) for number in range(3))
    for state, text in ((first, b"abcd"), (second, b"abcd"), (other, b"abce")):
        mask = torch.frombuffer(bytearray(text), dtype=torch.int32).numpy().view("uint32")
        states.allow(state, AllowedTokens(mask=mask))
    assert first.allowed is second.allowed is not other.allowed
    assert states.of(0) is states.find(0) is first is not states.of(0, frozenset([1]))
    assert states.after(first, 1, frozenset()) is second and states.after(first, 3, frozenset()) is None


@pytest.mark.parametrize("left", [2, 3, 4, 5])
def test_a_row_with_little_left_asks(left: int, table_guide: Any) -> None:
    """A known state is not gone on to where the text may not come to its end behind it."""
    guide = table_guide(VOCABULARY, [{0: 1}, {1: 1, 2: 2}, {3: 3}, {}], {3})
    generator = Generator(letters_model(), guide)
    generator("a", max_tokens=60, heal=False)
    for tokens in range(guide.distance(guide.start), guide.distance(guide.start) + left):
        text = generator.run("a", max_tokens=tokens, heal=False)
        assert text.finish_reason == "complete"
        assert len(text.token_ids) <= tokens
