"""The laws hold for every guide; and they catch guides that break them."""

from collections.abc import Callable
from random import Random

import interegular
import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import DEAD, CFGGuide, ChoiceGuide, FreeGuide, FSMGuide, Guide, RegexGuide, laws

from .regex.naive_guide import PartialMatchGuide
from .support import Mask
from .vocabularies import CHARACTERS, LONG, PIECEMEAL, SMALL

ARITHMETIC = r"""
start: sum
sum: product | sum ("+" | "-") product
product: atom | product "*" atom
atom: /[0-9]{1,4}/ | "(" sum ")" | "-" atom | /[a-z]{2,}/
"""
PALINDROMES = 'start: "a" start "a" | "b" start "b" | "a" | "b" |'
TWICE = 'start: item~2..3 "!"\nitem: "<" start? ">" | /[ab]{2,3}/'
PATTERNS = [
    r"\d{4}-\d\d-\d\d",
    r"([0-9]+)?\.[0-9]+",
    r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4}){0,20}"',
    ".{1,200}",
    r"(?:[é世]{2,5}|\w[a-z]*(?:a|aa){0,3}|b{3,})+",
    r"(?i:straße|STRAẞE)?\s*(?=.{3,9}$)[ab]*é+",
    "[^\x00-\x7f]{2,4}",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("vocabulary", [SMALL, LONG], ids=["small", "long"])
def test_patterns(pattern: str, vocabulary: Vocabulary) -> None:
    laws.check(RegexGuide(pattern, vocabulary), texts=2, tokens=8)
    laws.does_not_remember(lambda: RegexGuide(pattern, vocabulary), texts=3, tokens=5)


@pytest.mark.parametrize("grammar", [ARITHMETIC, PALINDROMES, TWICE], ids=["arithmetic", "palindromes", "twice"])
def test_grammars(grammar: str) -> None:
    laws.check(CFGGuide(grammar, SMALL), texts=3, tokens=8)
    laws.does_not_remember(lambda: CFGGuide(grammar, SMALL), texts=3, tokens=5)


def test_palindromes_where_bytes_are_missing() -> None:
    laws.check(CFGGuide(PALINDROMES, PIECEMEAL), texts=3, tokens=8)


@pytest.mark.parametrize(
    "guide",
    [
        ChoiceGuide(["positive", "negative", "pos", "世界"], SMALL),
        ChoiceGuide([str(number) for number in range(0, 3000, 7)], SMALL),
        FSMGuide(interegular.parse_pattern("(ab|[^é])*é").to_fsm(), SMALL),
        RegexGuide("[01]+|[é世\n]{2,}", CHARACTERS),
        FreeGuide(SMALL),
        FreeGuide(PIECEMEAL),
    ],
    ids=["words", "numbers", "machine", "characters", "free", "free of pieces"],
)
def test_other_guides(guide: Guide) -> None:
    laws.check(guide, texts=3, tokens=8)


@pytest.mark.parametrize("pattern", [".{1,200}", r'\{"name": "[^"]{0,40}", "age": \d{1,3}\}', r"https?://[a-z.]+/\S*"])
def test_a_large_vocabulary(llama3: Vocabulary, pattern: str) -> None:
    laws.check(RegexGuide(pattern, llama3), texts=1, tokens=3, sample=60)


def test_a_grammar_with_a_large_vocabulary(llama3: Vocabulary) -> None:
    laws.check(CFGGuide(ARITHMETIC, llama3), texts=1, tokens=3, sample=60)


def test_the_reference_guide_obeys_the_laws() -> None:
    vocabulary = Vocabulary.from_characters([*"ab", "ab", "bba"])
    laws.check(PartialMatchGuide("a{2,5}b|(?:ab){2}", vocabulary))


class Broken:
    """A good guide with one method replaced."""

    def __init__(self, **methods: Callable[..., object]) -> None:
        self._guide = RegexGuide("[ab]{2,6}cd|b+", SMALL)
        self._methods = methods
        self.vocabulary, self.start = SMALL, self._guide.start

    def mask(self, state: int) -> Mask:
        return self._call("mask", state)

    def advance(self, state: int, token: int) -> int:
        return self._call("advance", state, token)

    def is_accepting(self, state: int) -> bool:
        return self._call("is_accepting", state)

    def distance(self, state: int) -> int:
        return self._call("distance", state)

    def read(self, state: int, data: bytes) -> int:
        return self._call("read", state, data)

    def _call(self, name: str, *arguments: object):
        method = self._methods.get(name)
        return method(self._guide, *arguments) if method else getattr(self._guide, name)(*arguments)


def with_bit(token: int) -> Callable[[RegexGuide, int], Mask]:
    def mask(guide: RegexGuide, state: int) -> Mask:
        changed = guide.mask(state).copy()
        changed[token >> 5] |= np.uint32(1 << (token & 31))
        return changed

    return mask


def fickle(guide: RegexGuide, state: int) -> Mask:
    """Another mask every other time."""
    guide.times = getattr(guide, "times", 0) + 1  # type: ignore[attr-defined]
    return guide.mask(state) if guide.times % 2 else guide.mask(guide.start)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"mask": lambda guide, state: guide.mask(state).astype(np.int64)}, "is int64"),
        ({"mask": lambda guide, state: guide.mask(state)[:-1]}, "for 306 tokens"),
        ({"mask": with_bit(304)}, "allows token 304, which has no bytes"),
        ({"mask": with_bit(303)}, "accepting is False, but EOS"),
        ({"mask": with_bit(319)}, "allows token 319, but there are 306"),
        ({"mask": with_bit(ord("z"))}, "leads to -1, but allowed is True"),
        ({"mask": fickle}, "state"),
        ({"is_accepting": lambda guide, state: False}, "EOS"),
        ({"advance": lambda guide, state, token: guide.start}, "EOS .* leads to|leads to 0, but allowed is False"),
        ({"read": lambda guide, state, data: DEAD}, "but to another state as bytes"),
        ({"read": lambda guide, state, data: guide.read(state, data[:1])}, "differ|as bytes"),
        ({"distance": lambda guide, state: 1}, "distance 1, but accepting is True|no allowed token leads to a smaller"),
        ({"distance": lambda guide, state: max(0, guide.distance(state) - 1)}, "distance"),
        ({"distance": lambda guide, state: 1 << 30}, "distance"),
    ],
)
def test_a_broken_guide_is_caught(methods: dict[str, Callable[..., object]], message: str) -> None:
    laws.check(Broken(), texts=3, tokens=8)
    with pytest.raises(laws.LawBroken, match=message):
        laws.check(Broken(**methods), texts=3, tokens=8)


def test_a_guide_that_depends_on_its_past_is_caught() -> None:
    def make() -> Broken:
        asked: list[int] = []

        def distance(guide: RegexGuide, state: int) -> int:
            asked.append(state)
            return guide.distance(state) + (len(asked) > 4)

        return Broken(distance=distance)

    with pytest.raises(laws.LawBroken, match="depends on what was asked before"):
        laws.does_not_remember(make, tokens=4)


def test_a_guide_that_depends_on_how_a_text_is_cut_is_caught() -> None:
    class Counting(Broken):
        """States remember the number of tokens."""

        def advance(self, state: int, token: int) -> int:
            count, place = divmod(state, 1 << 16)
            after = self._guide.advance(place, token)
            return after if after < 0 or token in SMALL.eos_ids else after + (count + 1 << 16)

        def mask(self, state: int) -> Mask:
            return self._guide.mask(state % (1 << 16))

        def is_accepting(self, state: int) -> bool:
            return self._guide.is_accepting(state % (1 << 16)) and state >> 16 & 1 == 0

        def distance(self, state: int) -> int:
            return self._guide.distance(state % (1 << 16))

    guide = Counting()
    with pytest.raises(laws.LawBroken, match="leads to states that differ"):
        for seed in range(20):
            laws.same_by_any_tokens(guide, b"abababcd", Random(seed))


def test_spelling_finds_every_way() -> None:
    guide = RegexGuide("[ab]*", PIECEMEAL)
    ways = {tuple(laws.spelling(guide, b"aaaabbb", Random(seed))) for seed in range(200)}
    assert ways == {(0, 0, 0, 1, 2), (4, 1, 2)} and all(PIECEMEAL.decode(way) == b"aaaabbb" for way in ways)
    assert laws.spelling(guide, b"", Random(0)) == []


def test_walks_end_where_nothing_follows() -> None:
    guide = RegexGuide("a{3}", SMALL)
    for seed in range(5):
        *before, (last, nothing) = laws.walk(guide, Random(seed), 20)
        assert nothing == DEAD and guide.is_accepting(last)
        assert b"".join(SMALL.tokens[token] or b"" for _, token in before) == b"aaa"
