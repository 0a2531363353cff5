"""Goals as automata mean what trying every place in a text means."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from trellm import AnyOf, Gap, LanguageError, LimitError, Ordered, Phrase, Template, Vocabulary

from ...thresholds import thresholds
from ..support import VocabularyTables
from .naive_goals import met
from .support import Goal, GoalAutomaton, GoalTokens, automaton_of

BYTES = Vocabulary.from_bytes()

phrases = st.builds(Phrase, st.text("ab é", min_size=1, max_size=3), st.booleans())


def gap(fewest: int, more: int | None, chars: int | None) -> Gap:
    return Gap(fewest, None if more is None else fewest + more, None if chars is None else 2 * fewest + chars)


gaps = st.builds(
    gap,
    st.integers(0, 2),
    st.none() | st.integers(0, 1),
    st.none() | st.integers(1, 3),
)


def several(goals: st.SearchStrategy[Goal]) -> st.SearchStrategy[Goal]:
    lists = st.lists(goals, min_size=1, max_size=3)
    templates = st.tuples(goals, gaps | st.just(Gap()) | goals, goals).map(lambda parts: Template(*parts))
    return lists.map(lambda parts: AnyOf(*parts)) | lists.map(lambda parts: Ordered(*parts)) | templates


goals = phrases | st.recursive(phrases, several, max_leaves=5)


def says(found: GoalAutomaton, text: str) -> bool:
    return bool(found.met[found.read(0, text.encode())])


@settings(max_examples=50, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(goals, st.lists(st.text("aab  é", max_size=9), min_size=1, max_size=12))
def test_a_goal_is_met_where_some_place_in_the_text_meets_it(goal: Goal, texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        thresholds(patch, goal_states=1500)
        try:
            found = automaton_of(goal, BYTES)
        except LimitError:
            reject()
    for text in texts:
        assert says(found, text) == met(goal, text), (goal, text)


@pytest.mark.parametrize(
    ("goal", "text", "expected"),
    [
        (Phrase("abab"), "aababab", True),
        (Phrase("scared", word=True), "«scared»", True),
        (Phrase("scared", word=True), "scared—not", True),
        (Phrase("scared", word=True), "scaredé", False),
        (Phrase("scared", word=True), "𝔞scared", False),
        (Phrase("scared", word=True), "scaredy scared", True),
        (Ordered("aba", "bab"), "abab", False),
        (Ordered("aba", "bab"), "ababab", True),
        (AnyOf("scream", "she", "he"), "this screa, then she", True),
        (Template("the", Gap(min_words=2, max_words=2), "University"), "the Carnegie Mellon University", True),
        (Template("the", Gap(min_words=2, max_words=2), "University"), "the Harvard University", False),
        (AnyOf("Sie", "wir"), "die Sierra", True),
        (AnyOf("Sie", "wir", word=True), "die Sierra", False),
        (AnyOf("Sie", "wir", word=True), "die Sierra, die Sie", True),
        (Template("the", ..., "in", word=True), "bathe them within", False),
        (Template("the", ..., "in", word=True), "bathe the within, in", True),
        (Template("the", Gap(1, 1), "in", word=True), "the ater in", True),
        (Template("the", Gap(1, 1), "in", word=True), "theater in", False),
        (Template("the", Gap(1, 1), "in"), "theater in", True),
        (Template("the", " ", "in", word=True), "the in", False),
    ],
)
def test_named_cases(goal: Goal, text: str, expected: bool) -> None:
    assert says(automaton_of(goal, BYTES), text) == expected == met(goal, text)


def test_a_broken_phrase_falls_back_to_the_right_step() -> None:
    found = automaton_of(Phrase("aabaaa"), BYTES)
    tokens = GoalTokens(found, VocabularyTables.of(BYTES))
    after = found.read(0, b"aabaa")
    assert tokens.bytes_to_meet[after] == 1
    broken = found.read(after, b"b")
    assert tokens.bytes_to_meet[broken] == 3, "aab of the phrase is read again, not nothing"
    assert (tokens.progress[after], tokens.progress[broken], tokens.steps) == (5, 3, 6)


def test_bytes_that_are_no_text_are_read_too() -> None:
    found = automaton_of(Phrase("ab", word=True), BYTES)
    for before in (b"\xff", b"\x80", b"\xc3a ", b"\xe2\x82 ", b"\xf0\x9d\x94 "):
        assert found.met[found.read(0, before + b"ab")]
    for before in (b"\xc3", b"\xc3a\xc3\xa9", b"\xff_"):
        assert not found.met[found.read(0, before + b"ab")]


def test_bytes_left_are_the_fewest() -> None:
    found = automaton_of(Template("ab", Gap(max_words=1), "b c"), BYTES)
    tokens = GoalTokens(found, VocabularyTables.of(BYTES))
    for state in range(len(found)):
        reached, steps = {state}, 0
        while not any(found.met[place] for place in reached):
            reached, steps = set(np.unique(found.after[list(reached)]).tolist()), steps + 1
        assert steps == tokens.bytes_to_meet[state]


@pytest.mark.parametrize(("most_bytes", "is_kept"), [(8_000, False), (16_000, True)])
def test_what_is_kept_of_goals_is_bounded_by_what_it_weighs_now(
    most_bytes: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of 3 KB for a phrase, and a row of 1 KB for each of its states that was met."""
    thresholds(monkeypatch, bytes_of_vocabulary_tables=most_bytes)
    vocabulary = Vocabulary.from_bytes()
    first = GoalTokens.of(Phrase("ab"), vocabulary)
    kept = weakref.ref(first)
    for state in range(3):
        first.after(state)
    del first
    GoalTokens.of(Phrase("cd"), vocabulary)
    assert (kept() is not None) == is_kept


def test_token_ids_stand_for_their_text() -> None:
    vocabulary = Vocabulary([b"sc", b"ared", b"scared", None, None], [3])
    found = automaton_of(Phrase([0, 1]), vocabulary)
    assert says(found, "scared") and not says(found, "sc ared")
    with pytest.raises(LanguageError, match="token 4 spells no text"):
        automaton_of(Phrase([0, 4]), vocabulary)
    with pytest.raises(LanguageError, match="token 9 spells no text; token ids run from 0 to 4"):
        automaton_of(Phrase([9]), vocabulary)


def test_a_gap_that_counts_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitError, match="its gaps smaller"):
        automaton_of(Template("a", Gap(max_words=100, max_chars=1000), "b"), BYTES)
    thresholds(monkeypatch, goal_states=200)
    with pytest.raises(LimitError, match="its gaps smaller"):
        automaton_of(Template("a", Gap(min_words=20, max_words=20), "b"), BYTES)
