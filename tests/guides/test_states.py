"""Numbers that are no states, and states that were given up, evicted, or met in another guide."""

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from random import Random

import interegular
import numpy as np
import pytest
from trellm import Vocabulary
from trellm.errors import StateError
from trellm.guides import (
    DEAD,
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    FSMGuide,
    GoalGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    laws,
    mask_within,
    tokens_of,
)

from .vocabularies import SMALL

NESTED = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "integer"}, {"type": "string"}]}}
SUMS = 'start: start "+" item | item\nitem: "(" start ")" | /[ab]{1,40}/'
Make = Callable[[Vocabulary], Guide]
MAKERS: dict[str, Make] = {
    "regex": lambda v: RegexGuide("[a-z]{2,40} ab[01]*", v),
    "choice": lambda v: ChoiceGuide(["ab", "aba", "b"], v),
    "fsm": lambda v: FSMGuide(interegular.parse_pattern("(ab)*").to_fsm(), v),
    "grammar": lambda v: CFGGuide(SUMS, v),
    "json": lambda v: JSONGuide(NESTED, v),
    "quote": lambda v: SubstringGuide("ab aba b", v, boundary="character"),
    "free": FreeGuide,
    "aligned": lambda v: AlignedGuide(RegexGuide("[ab]+", v), b"aba"),
    "goals": lambda v: GoalGuide(RegexGuide("[ab]{1,9}", v), ["aa"]),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_numbers_that_are_no_states(kind: str) -> None:
    guide = MAKERS[kind](SMALL)
    laws.knows_its_states(guide)
    for token in tokens_of(guide.mask(guide.start))[:3]:
        guide.advance(guide.start, token)
    laws.knows_its_states(guide)


def test_states_that_masks_come_by_are_nobodys() -> None:
    guide = RegexGuide("[a-z]{2,40} ab[01]*", SMALL)
    guide.mask(guide.start)
    met = guide.automaton.state_count
    assert met > 2
    unknown = 0
    for state in range(1, met):
        for ask in (guide.mask, guide.distance, guide.describe, guide.is_accepting):
            with pytest.raises(StateError, match=f"{state} is no state"):
                ask(state)
            unknown += 1
    assert unknown == 4 * (met - 1)
    state = guide.advance(guide.start, ord("a"))
    assert guide.mask(state).any()


def texts_of(guide: Guide, seed: int, steps: int) -> list[tuple[int, int, int]]:
    """States and tokens of random texts, and where they led."""
    random, state = Random(seed), guide.start
    found: list[tuple[int, int, int]] = []
    eos = set(guide.vocabulary.eos_ids)
    for _ in range(steps):
        tokens = [token for token in tokens_of(guide.mask(state)) if token not in eos]
        if not tokens:
            state = guide.start
            continue
        token = random.choice(tokens)
        found.append((state, token, guide.advance(state, token)))
        state = found[-1][2]
    return found


@pytest.mark.parametrize("make", [MAKERS["regex"], MAKERS["grammar"], MAKERS["json"]], ids=["regex", "grammar", "json"])
def test_evicted_states(make: Make) -> None:
    """However often room is made, every state of a text means what it meant."""
    vocabulary = Vocabulary(SMALL.tokens, SMALL.eos_ids)
    guide, fresh = make(vocabulary), make(Vocabulary(SMALL.tokens, SMALL.eos_ids))
    steps = texts_of(guide, 3, 400)
    evicted = 0
    for _ in range(3):
        guide.automaton.collect(0)  # type: ignore[attr-defined]
        guide.automaton.collect(0)  # type: ignore[attr-defined]
        evicted += guide.automaton.evicted  # type: ignore[attr-defined]
        same = {guide.start: fresh.start}  # the numbers of one text in both
        for state, token, after in steps:
            same.setdefault(after, fresh.advance(same[state], token))
            assert np.array_equal(guide.mask(state), fresh.mask(same[state]))
            assert np.array_equal(mask_within(guide, state, 9), mask_within(fresh, same[state], 9))
            assert guide.distance(state) == fresh.distance(same[state])
            assert guide.is_accepting(after) == fresh.is_accepting(same[after])
    assert evicted > 3 * len({state for state, _, _ in steps}) // 2, "most states were evicted"


def test_a_long_text_is_held_in_little_memory() -> None:
    """Its states are large, and each is another; what it takes does not grow with every token."""
    guide = RegexGuide("[ab]*a[ab]{200}", SMALL)
    random = Random(1)
    states = [guide.start]
    for _ in range(12_000):
        states.append(guide.advance(states[-1], random.choice(b"ab")))
    assert len(set(states)) > 11_000
    assert guide.automaton.evicted > 3_000
    assert guide.automaton.held_bytes < 40 << 20
    fresh = RegexGuide("[ab]*a[ab]{200}", SMALL)
    for state in Random(2).sample(range(12_000), 5):
        way = fresh.start
        for before, after in pairwise(states[: state + 1]):
            way = fresh.advance(way, ord("a") if guide.advance(before, ord("a")) == after else ord("b"))
        assert np.array_equal(guide.mask(states[state]), fresh.mask(way))


def test_one_state_in_so_many_stays_awake() -> None:
    guide = RegexGuide("a{0,9000}b?", SMALL)
    state = guide.start
    for _ in range(1000):
        state = guide.advance(state, ord("a"))
    guide.automaton.collect(0)
    guide.automaton.collect(0)
    assert 1000 - 1000 // 64 - 3 <= guide.automaton.evicted < 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_of_a_busy_process() -> None:
    """A child begins while other threads are in the middle of things, and can use the same guides."""
    guides = [MAKERS[kind](SMALL) for kind in ("regex", "grammar", "json")]
    done = threading.Event()

    def work(seed: int) -> None:
        while not done.is_set():
            texts_of(guides[seed % 3], seed, 30)
            RegexGuide(f"[ab]{{2,{Random(seed).randint(3, 99)}}}", SMALL)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                import signal

                signal.alarm(300)  # ends a child that hangs
                for guide in guides:
                    texts_of(guide, 7, 30)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_dead_has_words_too() -> None:
    assert "cannot be continued" in RegexGuide("a", SMALL).describe(DEAD)
