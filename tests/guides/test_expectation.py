"""What guides say that they expect: characters, and the rules, terminals and subschemas that ask for them."""

from typing import Any

import pytest
from trellm import Vocabulary
from trellm.guides import AlignedGuide, CFGGuide, FreeGuide, GoalGuide, JSONGuide, RegexGuide, SubstringGuide

from .support import expected

BYTES = Vocabulary.from_bytes()
GRAMMAR = """
start: expr
expr: term (("+"|"-") term)*
term: NUMBER | "(" expr ")" | NAME
NUMBER: /[0-9]+/
NAME: /[a-z]{1,300}/
"""
SCHEMA = {
    "properties": {
        "name": {"type": "string"},
        "title": {"type": "string", "description": "the same as a name"},
        "age": {"type": "integer", "minimum": 0},
        "mood": {"enum": ["good", "grim"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        "more": {"$ref": "#/$defs/more"},
    },
    "required": ["name", "age", "mood", "tags", "more"],
    "additionalProperties": False,
    "type": "object",
    "$defs": {"more": {"anyOf": [{"type": "null"}, {"const": 7}]}},
}
ROOT = "# (properties, required, additionalProperties, type)"


def after(guide: Any, text: str) -> str:
    state = guide.start
    for byte in text.encode():
        state = guide.advance(state, byte)
    return guide.describe(state)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", '"Born in "'),
        ("Born in ", r"a digit of any script (\d)"),
        ("Born in 1", r"any character but a newline"),
        ("Born in 12", "any character but a newline, or the end of the text"),
        ("Born in 1é", "the end of the text"),
    ],
)
def test_a_pattern_expects_characters(text: str, words: str) -> None:
    assert after(RegexGuide(r"Born in (\d)+.", BYTES), text) == words


def test_inside_a_character_its_rest_is_expected() -> None:
    guide = RegexGuide("[é-ü]", BYTES)
    assert guide.describe(guide.advance(guide.start, 0xC3)) == "the rest of a character"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'a letter a-z, a digit 0-9 or "(" in term (NUMBER, NAME)'),
        ("(1", 'a digit 0-9, ")", "+" or "-" in expr or term (NUMBER)'),
        ("(1+", 'a letter a-z, a digit 0-9 or "(" in term (NUMBER, NAME)'),
        ("(1+a)", '"+" or "-" in expr, or the end of the text'),
    ],
)
def test_a_grammar_tells_rules_and_terminals(text: str, words: str) -> None:
    assert after(CFGGuide(GRAMMAR, BYTES), text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", f'"{{" in {ROOT}'),
        ('{"n', f"'ame\":' in {ROOT}"),
        ('{"name": "a', "any character but U+0000 to U+001F in #/properties/name or #/properties/title (type)"),
        ('{"name": "a", "age": ', 'a digit 0-9 or "-" in #/properties/age (type, minimum)'),
        ('{"name": "a", "age": 1, "mood": "g', '"o" or "r" in #/properties/mood (enum)'),
        (
            '{"name": "a", "age": 1, "mood": "good", "tags": ["a',
            "any character but U+0000 to U+001F in #/properties/tags/items (type, maxLength)",
        ),
        (
            '{"name": "a", "age": 1, "mood": "good", "tags": [], "more": ',
            '"0", "7" or "n" in #/$defs/more or #/properties/more (anyOf, $ref)',
        ),
        ('{"name": "a", "age": 1, "mood": "good", "tags": [], "more": null}', "the end of the text"),
    ],
)
def test_a_schema_tells_pointers_and_keywords(text: str, words: str) -> None:
    assert after(JSONGuide(SCHEMA, BYTES, order="schema"), text) == words


def test_the_whole_text_is_a_place_too() -> None:
    assert after(JSONGuide({"type": "string"}, BYTES), '"a').endswith(" in # (type)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'a quotation from the context that begins with "c", "n" or "t"'),
        ("the", '" ca", or the end of the text, quoting the context at 0:3 or 1:3'),
        ("the caf", '"é", quoting the context at 1:7'),
        ("no", '"ne"'),
    ],
)
def test_a_quotation_tells_places_in_the_context(text: str, words: str) -> None:
    guide = SubstringGuide(["the cat", "the café"], BYTES, none_text="none")
    assert after(guide, text) == words
    many = SubstringGuide("ab " * 9, BYTES)
    assert after(many, "a") == '"b", quoting the context at 1, 4, 7, 10 or 5 more'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a letter a-z or a space; goals 0/6, missing Phrase('cat'), Phrase('cow')"),
        ("a cat", "a letter a-z or a space; goals 3/6, missing Phrase('cow')"),
        ("a cat cow", "a letter a-z or a space, or the end of the text; goals 6/6"),
    ],
)
def test_goals_tell_their_progress(text: str, words: str) -> None:
    assert after(GoalGuide(RegexGuide("[a-z ]{9,20}", BYTES), ["cat", "cow"]), text) == words


def test_what_stands_around_another_guide_says_what_that_one_says() -> None:
    guide = AlignedGuide(RegexGuide("[0-9]+", BYTES), b"a ")
    assert after(guide, "") == '"a ", then a digit 0-9'
    assert after(guide, "a 1") == "a digit 0-9, or the end of the text"
    assert FreeGuide(BYTES).describe(0) == "anything"


class Silent:
    """A guide of two tokens that says nothing of itself."""

    vocabulary = Vocabulary([b"yes", b'"', b"\n", *[b"%d" % i for i in range(20)], None], eos_ids=[23])
    start = 0

    def __init__(self, tokens: list[int]) -> None:
        self._guide = RegexGuide("|".join(self.vocabulary.tokens[i].decode() for i in tokens), self.vocabulary)  # type: ignore[union-attr]

    def mask(self, state: int) -> Any:
        return self._guide.mask(state)

    def advance(self, state: int, token: int) -> int:
        return self._guide.advance(state, token)

    def is_accepting(self, state: int) -> bool:
        return self._guide.is_accepting(state)

    def distance(self, state: int) -> int:
        return self._guide.distance(state)


def test_of_a_silent_guide_the_tokens_are_listed() -> None:
    guide = Silent([0, 1, 2])
    assert expected(guide, guide.start) == '"yes" or \'"\' or "\\n"'
    assert expected(guide, guide.advance(guide.start, 0)) == "the end of the text"
    assert expected(Silent(list(range(23))), 0).endswith('"4" or one of 15 other tokens')
    assert expected(Silent(list(range(9))), 0).count(" or ") == 8
