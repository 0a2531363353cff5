"""Beams under a sibling penalty: a slow beam search by the definition, and the two ends of the penalty."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, Generation, generate, models

from ..machines import EOS, LETTERS, TABLE, VOCABULARY, letters_model

Scored = tuple[float, tuple[int, ...]]


def by_definition(table: np.ndarray, first: int, search: Beam, budget: int) -> list[Scored]:
    """Scores and tokens of free texts, best first. Row t of table n has the logits of the n-th token, after token t."""
    logprobs = table - np.log(np.exp(table).sum(axis=2, keepdims=True))
    beams: list[Scored] = [(0.0, ())]
    finished: list[Scored] = []
    for length in range(1, budget + 1):
        candidates: list[tuple[float, float, tuple[int, ...]]] = []
        for total, tokens in beams:
            row = logprobs[length, tokens[-1] if tokens else first]
            for rank, token in enumerate(np.argsort(-row)):
                after = total + row[token]
                candidates.append((after - rank * search.sibling_penalty, after, (*tokens, int(token))))
        candidates.sort(key=lambda one: -one[0])
        beams = []
        for rank, (_, total, tokens) in enumerate(candidates):
            if tokens[-1] != EOS and length < budget:
                beams.append((total, tokens))
            elif rank < search.width:
                finished.append((total / length, tokens[:-1] if tokens[-1] == EOS else tokens))
            if len(beams) == search.width:
                break
        finished = sorted(finished, key=lambda one: -one[0])[: search.width]
        if not beams or (len(finished) == search.width and max(beams)[0] / length <= finished[-1][0]):
            break
    return finished[: search.n]


@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1, 0.7, 3.0, 1000.0]),
    st.integers(0, EOS - 1),
    st.integers(1, 6),
)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_beams_are_those_of_the_definition(seed: int, width: int, penalty: float, first: int, budget: int) -> None:
    # by place too, so that no two texts are equally likely
    table = np.random.default_rng(seed).normal(size=(7, EOS + 1, EOS + 1))
    model = models.from_function(lambda ids: table[min(len(ids), 6), ids[-1]], VOCABULARY)
    search = Beam(width, n=width, sibling_penalty=penalty)
    found: Any = generate.text(model).run(LETTERS[first], search=search, max_tokens=budget, heal=False)
    results = cast("list[Generation[str]]", found if isinstance(found, list) else [found])
    wanted = by_definition(table, first, search, budget)
    assert [result.token_ids for result in results] == [tokens for _, tokens in wanted]
    assert [result.score for result in results] == pytest.approx([score for score, _ in wanted], abs=1e-5)


def test_a_great_penalty_continues_each_beam_greedily() -> None:
    """Only the first step branches, so that all texts of a constraint begin differently, and end as greedy ones do."""
    generator = generate.regex(letters_model(), "[a-e]{4}")
    texts = generator("a", search=Beam(5, n=5, sibling_penalty=1000), heal=False)
    assert sorted(text[0] for text in texts) == [*LETTERS]
    following = TABLE[:EOS, :EOS].argmax(axis=1)
    for text in texts:
        ids = [LETTERS.index(letter) for letter in text]
        assert ids[1:] == [following[token] for token in ids[:-1]]


@pytest.mark.parametrize("penalty", [0.5, 1000])
def test_goals_are_met_under_a_penalty(penalty: float) -> None:
    generator = generate.regex(letters_model(), "[a-e]{4}")
    search = Beam(5, n=5, sibling_penalty=penalty)
    texts = generator("a", search=search, include="bd", heal=False)
    assert texts and all("bd" in text for text in texts)


def test_beams_with_and_without_a_penalty_share_a_batch() -> None:
    generator = generate.regex(letters_model(), "[a-e]{3,6}")
    searches = [Beam(4, n=4), Beam(4, n=4, sibling_penalty=2.0)]
    alone = [generator(["a", "b"], search=search) for search in searches]
    assert alone[0] != alone[1]
    for search, wanted in zip(searches, alone, strict=True):
        assert generator(["a", "b"], search=search, batch_size=4) == wanted
