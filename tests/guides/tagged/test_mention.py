"""Free text up to where it names a text of a guide: the laws, what is named, and where the text ends."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from itertools import chain, product
from random import Random
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import LimitError, OptionError, StateError
from trellm.guides import DEAD, ByteGuide, ChoiceGuide, JSONGuide, RegexGuide, laws, tokens_of

from ..vocabularies import CHARACTERS, SMALL
from .support import MentionGuide

TOY = Vocabulary.from_characters([*"ab .\n", "ab", "b ", " a", ". a", "a\n", "bab"])
CHOICES = (["ab"], ["a", "ab", "ab ab"], ["b a", "a"], ["ab.", "b"], ["b", "b ab", "a b"])


def named(text: str, choices: Sequence[str]) -> str | None:
    """The definition: the first place where a choice stands between characters that are of no word; the longest."""
    for begin in range(len(text)):
        if begin and text[begin - 1].isalnum():
            continue
        ends = (begin + len(choice) for choice in choices if text.startswith(choice, begin))
        if found := [end for end in ends if not text[end : end + 1].isalnum()]:
            return text[begin : max(found)]
    return None


@cache
def is_sure(text: str, choices: tuple[str, ...]) -> bool:
    """Whether the same is named however the text goes on."""
    longest = max(map(len, choices)) + 1
    more = ["".join(each) for size in range(1, longest + 1) for each in product("ab .", repeat=size)]
    return named(text, choices) is not None and len({named(text + each, choices) for each in more}) == 1


@pytest.mark.parametrize("choices", CHOICES, ids=" or ".join)
def test_against_the_definition(choices: list[str]) -> None:
    random, guide, ended = Random(1), MentionGuide(ChoiceGuide(choices, TOY)), 0
    for _ in range(150):
        state, text, over = guide.start, "", False
        for _ in range(6):
            token = random.randrange(len(TOY.tokens) - len(TOY.eos_ids))
            spelt = (TOY.tokens[token] or b"").decode()
            before, state = text, guide.advance(state, token)
            text += spelt
            sure = next((n for n in range(len(text) + 1) if is_sure(text[:n], tuple(choices))), None)
            breaks = "\n" in text[:sure]
            assert (state == DEAD) == (over or breaks), (before, spelt)
            if state == DEAD:
                break
            over = sure is not None
            assert guide.is_accepting(state) == (named(text, choices) is not None), text
            allowed = [*map(int, tokens_of(guide.mask(state)))]
            assert (allowed == [*TOY.eos_ids]) == over, text
            ended += over
            place = guide.named(text.encode())
            assert (None if place is None else text[slice(*place)]) == named(text, choices)
    assert ended > 10


@pytest.mark.parametrize(
    "child",
    [
        ChoiceGuide(["ab", "aab", "世界"], SMALL),
        RegexGuide("[01]+", SMALL),
        RegexGuide("a(b a)*", SMALL),
        ChoiceGuide(["é", "a b"], CHARACTERS),
    ],
    ids=["choices", "digits", "words", "beyond ASCII"],
)
@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
def test_laws(child: Any, *, is_last: bool) -> None:
    guide = MentionGuide(child, is_last=is_last)
    chance = Random(0)
    for state, _ in chain.from_iterable(laws.walk(guide, chance, 10) for _ in range(4)):
        laws.check_state(guide, state, chance)
    for extra in (0, 1, 10):  # and not `same_by_any_tokens`, see below
        laws.closes_in_time(guide, guide.distance(guide.start) + extra, chance)
    laws.knows_its_states(guide)
    again = pickle.loads(pickle.dumps(guide))
    assert again.distance(again.start) == guide.distance(guide.start)
    assert not isinstance(guide, ByteGuide), "where a text ends depends on its tokens"


@pytest.mark.parametrize("choices", CHOICES, ids=" or ".join)
def test_the_last_against_the_definition(choices: list[str]) -> None:
    """The text may go on behind a name, over lines too, and ends wherever one is in it."""
    random, guide, counts = Random(2), MentionGuide(ChoiceGuide(choices, TOY), is_last=True), set[int]()
    for _ in range(150):
        state, text = guide.start, ""
        for _ in range(8):
            token = random.randrange(len(TOY.tokens) - len(TOY.eos_ids))
            text, state = text + (TOY.tokens[token] or b"").decode(), guide.advance(state, token)
            names = all_named(text, choices)
            counts.add(len(names))
            assert state != DEAD and guide.is_accepting(state) == bool(names), text
            assert {*map(int, tokens_of(guide.mask(state)))} >= {*range(len(TOY.tokens))} - {*TOY.eos_ids}
            place = guide.named(text.encode())
            assert (None if place is None else text[slice(*place)]) == (names[-1] if names else None), text
    assert {0, 1, 2} <= counts


def all_named(text: str, choices: Sequence[str]) -> list[str]:
    """The definition: what is named, from left to right, each behind the one before."""
    names, begin = list[str](), 0
    while begin < len(text):
        ends = [begin + len(each) for each in choices if text.startswith(each, begin)]
        ends = [end for end in ends if not text[end : end + 1].isalnum()]
        if ends and not (begin and text[begin - 1].isalnum()):
            names.append(text[begin : max(ends)])
        begin = max(ends) if ends and not (begin and text[begin - 1].isalnum()) else begin + 1
    return names


@pytest.mark.parametrize(
    "text, answer",
    [
        ("It is New York.", "New York"),
        ("It is New York City.", "New York City"),
        ("New Yorkers know Kyiv", "Kyiv"),
        ("Kyiv's mayor", "Kyiv"),
        ("in(Kyiv)", "Kyiv"),
        ("_Kyiv Kyiv1 éKyiv", None),
        ("“Kyiv”", "Kyiv"),
        ("这是东京的", "东京"),
        ("東京、Kyiv", "Kyiv"),
        ("", None),
    ],
)
def test_what_is_named(text: str, answer: str | None) -> None:
    guide = MentionGuide(ChoiceGuide(["New York", "New York City", "Kyiv", "东京"], Vocabulary.from_bytes()))
    place = guide.named(text.encode())
    assert (None if place is None else text.encode()[slice(*place)].decode()) == answer
    state = guide.start
    for byte in text.encode():
        state = guide.advance(state, byte)
        if state == DEAD or guide.mask(state)[: 256 // 32].sum() == 0:
            break
    assert (state != DEAD and guide.is_accepting(state)) == (answer is not None)


def test_what_is_refused() -> None:
    vocabulary = Vocabulary.from_bytes()
    with pytest.raises(OptionError, match="not a guide of a regular language"):
        MentionGuide(JSONGuide(True, vocabulary))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the empty text"):
        MentionGuide(RegexGuide("[0-9]*", vocabulary))
    for pattern in ("(ab|c){3000}", "a( [ab]){16}"):
        with pytest.raises(LimitError, match="frame=None"):
            MentionGuide(RegexGuide(pattern, vocabulary))
    with pytest.raises(StateError):
        MentionGuide(RegexGuide("[0-9]", vocabulary)).mask(1 << 20)
    guide = MentionGuide(RegexGuide("[0-9]", vocabulary))
    assert guide.describe(guide.start).startswith("free text, or ")
    assert guide.describe(DEAD).startswith("nothing")
