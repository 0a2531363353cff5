"""A model over five letters, and random machines over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from trellm import Vocabulary, models

LETTERS = "abcde"
EOS = len(LETTERS)
VOCABULARY = Vocabulary([*(letter.encode() for letter in LETTERS), None], eos_ids=(EOS,))
TABLE = np.random.default_rng(2).normal(size=(EOS + 1, EOS + 1))


def letters_model(**options: Any) -> Any:
    """Logits that depend on the last token only."""
    return models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY, **options)


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[dict[int, int]], set[int]]:
    """A random machine over the letters, every state of which can reach an accepting one."""
    states = draw(st.integers(1, 7))
    target = st.integers(0, states - 1)
    edges = [draw(st.dictionaries(st.integers(0, EOS - 1), target, max_size=4)) for _ in range(states)]
    for state in range(states - 1):  # a way to the last state, which accepts
        edges[state][draw(st.integers(0, EOS - 1))] = state + 1
    return edges, {states - 1, *draw(st.sets(target, max_size=2))}


def accepts(guide: Any, tokens: Sequence[int]) -> bool:
    state = guide.start
    for token in tokens:
        state = guide.advance(state, token)
    return state >= 0 and guide.is_accepting(state)
