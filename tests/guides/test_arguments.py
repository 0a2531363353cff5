"""What callers give where something else belongs is told so, before anything is made of it."""

import pytest
from trellm import AllOf, AnyOf, Gap, Limits, Ordered, Phrase, Quote, Template, Vocabulary
from trellm.errors import LanguageError, LimitError, OptionError, TrellmError, VocabularyError
from trellm.guides import ByteGuide, FreeGuide, FSMGuide, GoalGuide, Guide, RegexGuide, RowGuide, SubstringGuide

from .support import Quoting, Rebuildable, implements
from .vocabularies import SMALL

BYTES = Vocabulary.from_bytes()


@pytest.mark.parametrize("context", [None, 3, b"abc", [b"a"], ["a", None], [], {}, "\ud800", ["a", "b\udfff"], BYTES])
def test_contexts(context: object) -> None:
    with pytest.raises(OptionError):
        SubstringGuide(context, BYTES)  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        Quote(context)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"boundary": None},
        {"boundary": "letter"},
        {"boundary": ["word"]},
        {"boundary": (4, 12)},
        {"boundary": (16, 0)},
        {"boundary": (10**30,)},
        {"whitespace": 3},
        {"whitespace": []},
        {"min_chars": 0},
        {"min_chars": True},
        {"min_chars": 1.0},
        {"min_chars": None},
        {"max_chars": -1},
        {"max_chars": "9"},
        {"max_chars": float("nan")},
        {"min_chars": 5, "max_chars": 4},
        {"none_text": ""},
        {"none_text": 3},
        {"none_text": "\ud800"},
    ],
)
def test_options_of_quotations(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        SubstringGuide("some words here", BYTES, **options)  # type: ignore[arg-type]
    if "none_text" not in options:
        with pytest.raises(OptionError):
            Quote("some words here", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [2**31, 2**63, 10**30])
def test_bounds_beyond_every_context(most: int) -> None:
    guide = SubstringGuide("some words", BYTES, max_chars=most)
    assert guide.is_accepting(guide.read(guide.start, b"some words"))
    with pytest.raises(LanguageError, match="fewer than min_chars"):
        SubstringGuide("some words", BYTES, min_chars=most)


def test_what_are_no_vocabularies() -> None:
    with pytest.raises(OptionError, match="needs a Vocabulary"):
        SubstringGuide("a", None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="expected an interegular FSM"):
        FSMGuide("a", BYTES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "eos"),
    [
        (None, [0]),
        ("ab", [0]),
        (b"ab", [0]),
        ({"a": 0}, [0]),
        (["a", None], [1]),
        ([3, None], [1]),
        ([[97], None], [1]),
        ([b"a", None], "1"),
        ([b"a", None], None),
        ([b"a", None], [1.5]),
        ([b"a", None], [2]),
        ([b"a", None], [-1]),
        ([b"a", None], [2**70]),
        ([b"a", None], []),
        ([], []),
    ],
)
def test_tokens(tokens: object, eos: object) -> None:
    with pytest.raises((OptionError, VocabularyError)):
        Vocabulary(tokens, eos)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokenizer", [None, 3, {}, [b"a"], BYTES, object()])
def test_what_are_no_tokenizers(tokenizer: object) -> None:
    with pytest.raises(TrellmError, match="not a tokenizer"):
        Vocabulary.from_tokenizer(tokenizer)


@pytest.mark.parametrize("goals", [None, 3, [None], [3], [[1, 2]], [...], Gap(), [Gap()], {"a"}, [b"a"], object()])
def test_goals(goals: object) -> None:
    with pytest.raises(OptionError):
        GoalGuide(RegexGuide(".*", BYTES), goals)


@pytest.mark.parametrize("goal", [Phrase, AnyOf, Ordered, AllOf, Template])
@pytest.mark.parametrize("part", [None, 3, 1.5, object(), "\ud800", "", b"", [], {}])
def test_parts_of_goals(goal: type, part: object) -> None:
    with pytest.raises(OptionError):
        goal(part)


@pytest.mark.parametrize("bound", [-1, 1.5, "3", True, float("inf")])
def test_bounds_of_gaps(bound: object) -> None:
    for name in ("min_words", "max_words", "max_chars"):
        with pytest.raises(OptionError):
            Gap(**{name: bound})  # type: ignore[arg-type]


def test_goals_that_are_too_much() -> None:
    child = RegexGuide("(?s).*", BYTES)
    deep = Phrase("a")
    for _ in range(3000):
        deep = AnyOf(deep)
    for goal in ("a" * 100_000, "a" * 9_000, Template("a", Gap(max_words=10**9), "b"), deep):
        with pytest.raises((LimitError, OptionError)) as caught:
            GoalGuide(child, [goal], limits=Limits(work=20_000_000))
        assert len(str(caught.value)) < 1000


def test_conforming_to_a_protocol_is_what_python_says_of_it() -> None:
    guides = [RegexGuide("a+", SMALL), SubstringGuide("a b", SMALL), FreeGuide(SMALL), object(), None]
    for protocol in (Guide, ByteGuide, RowGuide, Rebuildable, Quoting):
        for each in guides * 2:
            assert implements(each, protocol) == isinstance(each, protocol), (each, protocol)
