"""A guide with goals: the laws, exactness against enumeration, and what is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import regex
from trellm import AnyOf, Gap, LanguageError, LimitError, OptionError, Ordered, Phrase, Template, Vocabulary
from trellm.guides import DEAD, ByteGuide, CFGGuide, FreeGuide, GoalGuide, JSONGuide, RegexGuide, laws, tokens_of

from ...thresholds import thresholds
from ..regex.naive_guide import PartialMatchGuide
from ..vocabularies import CHARACTERS, PIECEMEAL, SMALL
from .naive_goals import met
from .support import Goal

PALINDROMES = 'start: "a" start "a" | "b" start "b" | "a" | "b" |'
BRACKETS = 'start: "[" start "]" | start "," start | /[a-c]{1,3}/ | /[01]+/'
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("child", "goals"),
    [
        (FreeGuide(SMALL), ["scared"]),
        (FreeGuide(SMALL), ["scared", AnyOf("scream", "screams"), Phrase("01", word=True), Phrase("a", word=True)]),
        (FreeGuide(CHARACTERS), ["01", Template("10", Gap(min_words=1, max_chars=4), "é")]),
        (FreeGuide(PIECEMEAL), ["bab", "abb"]),
        (RegexGuide("[a-c ]{12}", SMALL), [Ordered("ab", "ca")]),
        (RegexGuide('"[a-z]*": "[a-z ]*"', SMALL), [Phrase("cat", word=True), Phrase("dog", word=True)]),
        (RegexGuide("[01]{3,7}|[é世\n]{2,}", CHARACTERS), ["01", "10"]),
        (RegexGuide("(?:a|b|é){2,9}", PIECEMEAL), ["bab"]),
        (CFGGuide(BRACKETS, SMALL), ["abc", "[[", "01"]),
        pytest.param(JSONGuide(PERSON, SMALL), ["12", "aba"], marks=pytest.mark.slow),
    ],
    ids=["phrase", "four", "template", "free-pieces", "ordered", "words", "characters", "pieces", "grammar", "json"],
)
def test_the_laws(child: ByteGuide, goals: list[Goal | str]) -> None:
    laws.check(GoalGuide(child, goals, max_states=2000), texts=2, tokens=6, sample=40)
    laws.does_not_remember(lambda: GoalGuide(child, goals, max_states=2000), texts=2, tokens=4)


def texts_of(vocabulary: Vocabulary, pattern: str, length: int) -> list[str]:
    """All texts of up to `length` characters that a pattern matches."""
    guide = PartialMatchGuide(pattern, vocabulary)
    found: list[str] = []
    layer = [""]
    for _ in range(length + 1):
        found += layer
        layer = [text + c for text in layer for c in "ab " if guide.viable(text + c)]
    assert not layer, "the pattern must be finite"
    return [text for text in found if regex.fullmatch(pattern, text)]


TOY = Vocabulary.from_characters(["a", "b", " ", "ab", "ba", "aab", " b"])


@pytest.mark.parametrize(
    ("pattern", "goals"),
    [
        ("[ab]{0,6}", ["aba", "bb"]),
        ("[ab ]{0,5}", [Phrase("ab", word=True), "ba"]),
        ("(?:ab|b ){0,3}", ["abb"]),
        ("a{0,3}b{0,3}", [AnyOf("ab", "bbb")]),
        ("[ab]{2} [ab]{1,3}", [Template("a", Gap(max_words=1, max_chars=3), "a")]),
    ],
)
def test_allowed_is_what_some_text_begins_with(pattern: str, goals: list[Any]) -> None:
    """By enumeration: masks, acceptance and the fewest tokens, along random texts."""
    guide = GoalGuide(RegexGuide(pattern, TOY), goals)
    good = [text for text in texts_of(TOY, pattern, 8) if all(met(goal, text) for goal in guide.goals)]
    random = Random(7)
    for _ in range(8):
        state, text = guide.start, ""
        while True:
            assert guide.is_accepting(state) == (text in good)
            assert guide.distance(state) == fewest(text, good)
            assert bool(guide.unmet(state)) == (not all(met(goal, text) for goal in guide.goals))
            for token in range(7):
                longer = text + TOY.tokens[token].decode()  # type: ignore[union-attr]
                assert laws.allows(guide.mask(state), token) == any(each.startswith(longer) for each in good), longer
            choices = [token for token in tokens_of(guide.mask(state)) if token != 7]
            if not choices:
                break
            token = random.choice(choices)
            state, text = guide.advance(state, token), text + TOY.tokens[token].decode()  # type: ignore[union-attr]


def fewest(text: str, good: list[str]) -> int:
    """The fewest tokens from a text to one of the good ones."""
    least = 0
    layer = {text}
    while not layer & set(good):
        longer = {begun + token.decode() for begun in layer for token in TOY.tokens if token}
        layer = {each for each in longer if any(whole.startswith(each) for whole in good)}
        least += 1
    return least


def test_end_waits_for_the_goals_and_progress_counts_tokens() -> None:
    vocabulary = Vocabulary.from_characters(["The", " dog", " is", " fast", " slow", " "])
    guide = GoalGuide(FreeGuide(vocabulary), ["is fast"])
    assert guide.steps == 2
    state = guide.start
    seen: list[int] = []
    for token in (0, 1, 2, 4, 2, 3):
        assert not laws.allows(guide.mask(state), 6) and not guide.is_accepting(state)
        assert guide.unmet(state) == ("Phrase('is fast')",)
        state = guide.advance(state, token)
        seen.append(guide.progress(state))
    assert seen == [0, 0, 1, 0, 1, 2], "slow breaks the phrase"
    assert laws.allows(guide.mask(state), 6) and guide.is_accepting(state) and guide.unmet(state) == ()
    assert guide.read(guide.start, b"The dog is") == guide.advance(guide.read(guide.start, b"The dog"), 2)


def test_tokens_that_advance() -> None:
    vocabulary = Vocabulary.from_characters(["The", " is", " fast", "faster", "is", "er"])
    guide = GoalGuide(RegexGuide("(?:The| is| fast(?:er)?)*", vocabulary), ["is fast", "The"])
    at = guide.read(guide.start, b"The is")
    assert tokens_of(guide.advancing(guide.start)) == [0, 1]
    assert tokens_of(guide.advancing(at)) == [2]
    assert guide.progress(at) == 2 and guide.steps == 3


def test_a_word_that_turns_out_longer_is_not_met() -> None:
    guide = GoalGuide(FreeGuide(SMALL), [Phrase("scared", word=True)])
    state = guide.read(guide.start, b"is scared")
    assert guide.is_accepting(state)
    longer = guide.read(state, b"y")
    assert not guide.is_accepting(longer) and guide.distance(longer) == 7
    assert guide.is_accepting(guide.read(guide.read(state, b","), b"y"))


@pytest.mark.parametrize(
    ("pattern", "goals", "message"),
    [
        (r"\d{4}", ["12", "x"], r"no text of the constraint contains Phrase\('x'\)"),
        (r"\d{4}", ["12345"], r"contains Phrase\('12345'\)"),
        (r"\d{4}", ["123", "456"], r"contains all of Phrase\('123'\) and Phrase\('456'\)"),
        (r"\w+", [Phrase("a", word=True), Phrase("b", word=True)], "though it may contain each"),
    ],
)
def test_goals_that_contradict_the_guide(pattern: str, goals: list[Any], message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        GoalGuide(RegexGuide(pattern, SMALL), goals)


def test_goals_that_the_vocabulary_cannot_spell() -> None:
    with pytest.raises(LanguageError, match=r"no tokens that spell a text with Phrase\('x'\)"):
        GoalGuide(FreeGuide(CHARACTERS), ["x"])


NESTED = 'start: "(" start ")" | "x"'
ARRAYS = {"type": "array", "items": {"$ref": "#"}}
CHAIN: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("child", "goals", "named"),
    [
        (CFGGuide(NESTED, SMALL), ["y"], r"contains Phrase\('y'\)"),
        (CFGGuide(NESTED, SMALL), ["((x("], r"contains Phrase\('\(\(x\('\)"),
        (CFGGuide(NESTED, SMALL), [")", Template("x", Gap(max_chars=2), "(")], "contains Template"),
        (CFGGuide(PALINDROMES, SMALL), ["c"], r"contains Phrase\('c'\)"),
        (CFGGuide('start: "a" s "a" | "b" s "b"\ns: "(" s ")" | "x"', SMALL), ["a(", "x)b"], "contains all of"),
        (RegexGuide("(ab){0,100000}", SMALL), ["bb"], r"contains Phrase\('bb'\)"),
        (RegexGuide("[a-z]{1,20000}", SMALL), ["1"], r"contains Phrase\('1'\)"),
        (RegexGuide("(a|b){1,3000}c(a|b){1,3000}", SMALL), [Ordered("c", "c")], "contains Ordered"),
        (RegexGuide("([a-z]{1,40},){1,20}", SMALL), ["y" * 41], "contains Phrase"),
        (JSONGuide(ARRAYS, SMALL), ["x"], r"contains Phrase\('x'\)"),
        (JSONGuide(CHAIN, SMALL), ["zz"], r"contains Phrase\('zz'\)"),
        (
            JSONGuide(CHAIN, SMALL, order="schema", spelling="plain", whitespace="compact"),
            ['"b":1,"a"'],
            "contains Phrase",
        ),
        (JSONGuide({}, SMALL), ["\x01"], "contains Phrase"),
    ],
)
def test_goals_that_no_text_meets_are_refused_as_such_where_there_are_states_without_number(
    child: ByteGuide, goals: list[Any], named: str
) -> None:
    with pytest.raises(LanguageError, match=f"no text of the constraint {named}"):
        GoalGuide(child, goals)


def test_whether_goals_can_be_met_is_decided_as_enumeration_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at once, for random phrases under random grammars of short texts."""
    thresholds(monkeypatch, states_before_goals_are_asked=0)
    random = Random(5)
    seen = {True: 0, False: 0}
    for _ in range(60):
        rules = ["".join(random.choice("abS") for _ in range(random.randrange(1, 4))) for _ in range(2)]
        texts, layer = set[str](), {"S"}
        for _ in range(7):
            layer = {form.replace("S", rule, 1) for form in layer for rule in [*rules, "ab"] if form.count("S") < 4}
            texts |= {form for form in layer if "S" not in form}
        bodies = " | ".join(
            " ".join(f'"{char}"' if char != "S" else "start" for char in rule) for rule in [*rules, "ab"]
        )
        phrase = "".join(random.choice("ab") for _ in range(random.randrange(2, 5)))
        try:
            GoalGuide(CFGGuide(f"start: {bodies}", SMALL), [phrase])
            is_met = True
        except LanguageError:
            is_met = False
        seen[is_met] += 1
        assert is_met or not any(phrase in text for text in texts), (rules, phrase)
        assert not is_met or any(phrase in text for text in texts) or any(len(text) > 8 for text in texts), (
            rules,
            phrase,
        )
    assert min(seen.values()) > 5


def test_a_search_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(LimitError, match=r"Phrase\('c'\) was found within 50 states; it may have none"):
        GoalGuide(CFGGuide(PALINDROMES, SMALL), ["c"], max_states=50)


class ByCharacter:
    """Another kind of guide, over bytes: so many letters, between brackets; it says no more than the protocol asks."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.start = vocabulary, 0

    def mask(self, state: int) -> Any:
        flags = np.zeros(-(-self.vocabulary.size // 32) * 32, np.bool_)
        flags[[token for token in range(self.vocabulary.size) if self.advance(state, token) != DEAD]] = True
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def advance(self, state: int, token: int) -> int:
        if token in self.vocabulary.eos_ids:
            return state if self.is_accepting(state) else DEAD
        text = self.vocabulary.tokens[token]
        return self.read(state, text) if text else DEAD

    def read(self, state: int, data: bytes) -> int:
        for byte in data:
            inside = 0 < state < 8 and byte in b"ab"
            if not inside and (state, byte) not in [(0, 40), (5, 41), (6, 41), (7, 41), (8, 41)]:
                return DEAD
            state = 9 if byte == 41 else state + 1
        return state

    def is_accepting(self, state: int) -> bool:
        return state == 9

    def distance(self, state: int) -> int:
        return 0 if state == 9 else 1 + max(0, 5 - state)


def test_a_guide_of_another_kind() -> None:
    child = ByCharacter(SMALL)
    laws.check(child, texts=1, tokens=4, sample=40)
    guide = GoalGuide(child, ["abab", "bb"])
    laws.check(guide, texts=2, tokens=5, sample=40)
    with pytest.raises(LanguageError):
        GoalGuide(child, ["abab", "bbbbb"])


def test_a_guide_that_reads_no_bytes() -> None:
    with pytest.raises(OptionError, match="has no method `read`"):
        GoalGuide(PartialMatchGuide("a+", TOY), ["a"])  # type: ignore[arg-type]
