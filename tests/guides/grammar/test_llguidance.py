"""What llguidance adds to Lark's notation, against its matcher, or what the definition of a construct says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from trellm import Capture, Vocabulary
from trellm.errors import GrammarError, LanguageError, LimitError
from trellm.guides import CFGGuide, JSONGuide, RegexGuide, laws, tokens_of

from ..quoting.test_substring import outputs
from ..vocabularies import SMALL

BYTES = Vocabulary.from_bytes()
TEXTS = ["".join(letters) for size in range(6) for letters in product("ab", repeat=size)]


def accepts(guide: CFGGuide | RegexGuide, text: str) -> bool:
    state = guide.automaton.read(guide.start, text.encode())
    return state >= 0 and guide.automaton.is_accepting(state)


@pytest.fixture(scope="module")
def peer() -> Callable[[str, str], bool]:
    """Tells whether llguidance takes a text for one of a grammar."""
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer("byte")

    def takes(grammar: str, text: str) -> bool:
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
        assert not matcher.is_error(), (grammar, matcher.get_error())
        tokens = tokenizer.tokenize_bytes(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    return takes


def _expression(random: Random, depth: int) -> str:
    """A random terminal of letters a and b."""
    kind = random.randrange(10) if depth else 0
    inner = [_expression(random, depth - 1) for _ in range(2)] if kind else []
    if kind < 3:
        return random.choice(['"a"', '"b"', '"ab"', "/[ab]/", "/a*/", "X"])
    if kind < 5:
        return f"({' '.join(inner)})"
    if kind < 6:
        return f"({' | '.join(inner)})"
    if kind < 8:
        low, more = random.randrange(3), random.randrange(1, 3)
        return f"({inner[0]})" + random.choice(
            ["?", "*", "+", f"{{{low + 1}}}", f"{{{low},{low + more}}}", f"{{{low},}}"]
        )
    return f"({inner[0]} & {inner[1]})" if kind < 9 else f"(/[ab]*/ & ~({inner[0]}))"


def test_terminals_with_counts_and_operators_are_those_of_llguidance(peer: Callable[[str, str], bool]) -> None:
    random = Random(5)
    for _ in range(60):
        grammar = f'start: "<" T ">"\nT: {_expression(random, 3)}\nX: "b" | "ba"\n'
        texts = [f"<{text}>" for text in random.sample(TEXTS, 25)]
        try:
            guide = CFGGuide(grammar, BYTES)
        except LanguageError:
            assert not any(peer(grammar, text) for text in texts), grammar
            continue
        for text in texts:
            assert accepts(guide, text) == peer(grammar, text), (grammar, text)


@pytest.mark.parametrize("ending", ["lazy", 'suffix="b"', 'suffix="ab"', "suffix=/ba?/", "suffix=X", 'stop="b"'])
def test_rules_that_end_as_soon_as_they_can(ending: str, peer: Callable[[str, str], bool]) -> None:
    random = Random(ending)
    after = "b" if ending.startswith("stop") else ""
    for _ in range(14):
        body = f"{_expression(random, 2)} ({_expression(random, 1)})"
        grammar = f'start: x "{after}c"\nx[{ending}]: {body}\nX: "b" | "ba"\n'
        try:
            guide = CFGGuide(grammar, BYTES)
        except LanguageError:
            assert not any(peer(grammar, text + "c") for text in TEXTS), grammar
            continue
        if ending == "lazy" and accepts(guide, "c"):
            continue  # its documentation says the same, its matcher has a further text besides the empty one
        for text in random.sample(TEXTS, 25):
            assert accepts(guide, text + "c") == peer(grammar, text + "c"), (grammar, text)


@pytest.mark.parametrize("mark", ['"b"', '"ab"', "/ba?/", "/a?b/", "X", "/(a|b)b/"])
def test_what_ended_a_rule_is_captured_as_by_llguidance(mark: str) -> None:
    """Of several ways to part a text from its end the one with the longest text."""
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer("byte")
    random, compared = Random(mark), 0
    for _ in range(12):
        body = f"{_expression(random, 2)} ({_expression(random, 1)})"
        grammar = f'start: x "c"\nx[suffix={mark}, stop_capture="end", capture]: {body}\nX: "b" | "ba"\n'
        try:
            guide = CFGGuide(grammar, BYTES)
        except LanguageError:
            continue
        for text in TEXTS:
            if accepts(guide, text + "c"):
                matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
                assert matcher.consume_tokens(tokenizer.tokenize_bytes(f"{text}c".encode()))
                ours = {name: captured.text for name, (captured,) in guide.captures(text + "c").items()}
                assert ours == {name: found.decode() for name, found in matcher.get_captures()}, (grammar, text)
                compared += 1
    assert compared > 5


def test_places_of_what_ended_a_rule() -> None:
    """Behind the rule where its end is written there, with ignored text between them."""
    rules = 'said[stop="!", capture, stop_capture="mark"]: /[a-z]*/\nname[suffix=/[.;]/, stop_capture="mark"]: /[a-z]*/'
    guide = CFGGuide(f'start: said "!" name+\n{rules}\n%ignore " "', BYTES)
    marks = (Capture("!", 3, 4), Capture(".", 6, 7), Capture(";", 9, 10))
    assert guide.captures("ab ! c. d; ") == {"said": (Capture("ab", 0, 2),), "mark": marks}
    assert CFGGuide(f'start: said "?"\n{rules}', BYTES).captures("ab?") == {"said": (Capture("ab", 0, 2),)}


def test_shortest_matches_by_definition() -> None:
    for pattern, mark in product(["[ab]*", "(a|ab)*", "b*a", "a?b?a?"], ["", "b", "ab", "aa"]):
        whole = re.compile(pattern + mark)
        found = {text for text in TEXTS if whole.fullmatch(text)}
        shortest = {text for text in found if not any(text[:end] in found for end in range(len(text)))}
        lazy = CFGGuide(f'start: x "c"\nx[{"lazy" if not mark else f"""suffix="{mark}" """}]: /{pattern}/', BYTES)
        assert {text for text in TEXTS if accepts(lazy, text + "c")} == shortest, (pattern, mark)
        if mark:
            stop = CFGGuide(f'start: x "c"\nx[stop="{mark}"]: /{pattern}/', BYTES)
            bodies = {text for text in TEXTS if len(text) <= 3 and accepts(stop, text + "c")}
            assert bodies == {text.removesuffix(mark) for text in shortest if len(text) <= 3 + len(mark)}


@pytest.mark.parametrize(
    ("written", "pieces"),
    [
        ('{"substring_chunks": ["ab", "c", "", "ab", "d"]}', ["ab", "c", "ab", "d"]),
        ('{"substring_chars": "é世a\\n"}', list("é世a\n")),
        ('{"substring_words": "é2_x  -- y"}', ["é2_x", "  ", "--", " ", "y"]),
        ('{"substring_words": ""}', []),
    ],
)
def test_substrings_by_definition(written: str, pieces: list[str]) -> None:
    expected = {"".join(pieces[i:j]) for i in range(len(pieces) + 1) for j in range(i, len(pieces) + 1)}
    guide = CFGGuide(f'start: "<" W ">"\nW: %regex {written}', BYTES)
    assert sorted(outputs(guide)) == sorted(f"<{text}>".encode() for text in expected)
    assert guide.spans("<>") == {}


def test_words_are_those_of_llguidance(peer: Callable[[str, str], bool]) -> None:
    random = Random(3)
    alphabet = "ab1_ \n\t.,-'é世½Ⅳ\u0301\u0915\u093f\u094dⓐ\u00a0\u200b😀"
    for _ in range(20):
        text = "".join(random.choices(alphabet, k=12))
        grammar = f'start: "<" W ">"\nW: %regex {json.dumps({"substring_words": text})}'
        guide = CFGGuide(grammar, BYTES)
        for begin in range(len(text)):
            assert accepts(guide, f"<{text[begin:]}>") == peer(grammar, f"<{text[begin:]}>"), (text, begin)


SCHEMAS = [
    {"type": "integer", "minimum": 3},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [1, "x", None]}}, "required": ["b"]},
    {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    True,
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_of_a_schema_are_those_of_its_guide(schema: dict[str, object] | bool) -> None:
    """Token by token, along random texts: the same masks."""
    alone = JSONGuide(schema, BYTES, order="schema", spelling="plain")
    random = Random(7)
    text = json.dumps(schema)
    for grammar, before in ((f"start: %json {text}", ""), (f'start: "<" (value ";")* \nvalue: %json\n  {text}', "<")):
        guide = CFGGuide(grammar, BYTES)
        for _ in range(10):
            state, inner = guide.read(guide.start, before.encode()), alone.start
            for _ in range(25):
                tokens = tokens_of(alone.mask(inner))
                mask = [token for token in tokens if token < 256]
                here = [token for token in tokens_of(guide.mask(state)) if token < 256 and token != ord(";")]
                assert here == [token for token in mask if token != ord(";")]
                if not mask or (alone.is_accepting(inner) and random.random() < 0.5):
                    break
                token = random.choice(mask)
                state, inner = guide.advance(state, token), alone.advance(inner, token)


def test_several_schemas_ignored_text_and_the_laws() -> None:
    grammar = """
    %llguidance {"no_forcing": true}
    start: "a" %json {"type": "array", "items": {"type": "integer"}} (other-value | %json {"const": "a"}){1,2}
    other-value[suffix="b"]: /[ab]*/
    %ignore " "
    """
    guide = CFGGuide(grammar, BYTES)
    for text in ('a[1,2]"a"', 'a [1,2] "a"  b', "a[]ab ", "a[]abb"):
        assert accepts(guide, text), text
    for text in ('a[1 ,2]"a"', "a[]", 'a[]"b"', 'a[]"a"bb"a"'):
        assert not accepts(guide, text), text
    laws.check(CFGGuide('start: "a" %json {"enum": ["ab", 1]} x "b"\nx[suffix="ab"]: /[ab ]*/', SMALL))


def test_terminals_may_be_empty() -> None:
    guide = CFGGuide('start: A B* C ""\nA: "a"*\nB: /b?/\nC: A "c" | ""\n%ignore W\nW: /[ ]*/', BYTES)
    for text in ("", "a", "aab", "c", " b b ", "aa ac"):
        assert accepts(guide, text), text
    assert not accepts(guide, "ca")


ERRORS = [
    ('start: "a"{2,1}', 1, 11, "{2,1} is no range of repeats"),
    ('start: "a"{2', 1, 13, "expected '}' behind the counts"),
    ('start: "a"{2,x}', 1, 14, "expected a number of repeats after ','"),
    ("start: %json {", 1, 15, "this is no JSON"),
    ("start: %json 5", 1, 8, "a schema is an object"),
    ('start: %json {"type": "integer", "minimum": 2, "maximum": 1}', 1, 8, "no value satisfies this schema"),
    ('start: %json {"uniqueItems": true, "type": "array", "minItems": 2}', 1, 8, "which is no part of a grammar"),
    ('start: A\nA: %json {"const": 1}', 2, 4, "a schema is not regular"),
    ('start: "a"\nx: %json {"type": "integer", "pattern": 5}', 2, 4, "%json:"),
    ('start: %regex {"type": "substring"}', 1, 8, "%regex takes substring_words"),
    ('start: %regex {"substring_chunks": ["a", 5]}', 1, 8, "%regex takes substring_words"),
    ('start: %regex {"substring_chars": "\\ud800"}', 1, 8, "a lone surrogate"),
    ('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', 1, 1, "'allow_invalid_utf8' as true is not supported"),
    ('%llguidance {"skip_repetition": "once"}\nstart: "a"', 1, 1, "'skip_repetition' as \"once\" is not supported"),
    ('%llguidance []\nstart: "a"', 1, 1, "the options of %llguidance must be a JSON object"),
    ("start: @other", 1, 8, "a grammar cannot refer to others"),
    ("start: a::1", 1, 9, "rules have no numbers as parameters"),
    ('start: %lark { start: "a" }', 1, 8, "found '%lark'"),
    ('start[capture="a", capture]: /a/', 1, 20, "a rule has at most one attribute that ends it, and each capture once"),
    ("start[capture=a]: /a/", 1, 15, "expected the name of the capture in double quotes"),
    ('start[capture=""]: /a/', 1, 15, "the name of a capture must be a text in double quotes, not empty"),
    ('start: a\na[capture]: a "b" | "c"', 2, 1, "the rule 'a' has a capture and is left-recursive"),
    ('start[lazy, stop_capture="x"]: /a/', 1, 1, "stop_capture needs suffix= or stop="),
    ('start[suffix="b", stop_capture]: /a/', 1, 31, "expected '=' and the name of the capture"),
    ("start[max_tokens=5]: /a/", 1, 7, "the attribute 'max_tokens' is not supported: rules bound text"),
    ("start[temperature=0.5]: /a/", 1, 7, "the attribute 'temperature' is not supported"),
    ("start[eager]: /a/", 1, 7, "'eager' is no attribute; give one of lazy, suffix, stop"),
    ('start[lazy, suffix="a"]: /a/', 1, 13, "a rule has at most one attribute"),
    ("start[suffix]: /a/", 1, 13, "expected '=' and a text or a terminal after 'suffix'"),
    ("start[lazy: /a/", 1, 11, "expected ',' or ']'"),
    ("start[]: /a/", 1, 7, "expected an attribute"),
    ('start[stop=""]: /a/', 1, 7, "stop has no text; give the one that ends the rule"),
    ('start[suffix=""]: /a/', 1, 7, "suffix has no text"),
    ("start[stop=/b+/]: /a/", 1, 7, "stop= needs a text in quotes"),
    ('start: x\nx[lazy]: y\ny: "b"', 2, 10, "the rule 'y' cannot be used inside a terminal, nor in a rule that ends"),
    ('start: x\nx[lazy]: %regex {"substring_chars": "ab"}', 2, 3, "cannot be used in a rule that ends by an attribute"),
    ('start: A\nA: %regex {"substring_chars": "ab"} & "a"', 2, 37, "nor with & or ~"),
    ('start: "a" & "b"', 1, 12, "'&' needs terminals"),
    ("start: A\nA: ~", 2, 5, "expected a literal, a name or a bracket after '~'"),
    ('start: A\nA: "a" & B\nB: ~A', 3, 5, "the terminal 'A' contains itself"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), ERRORS)
def test_errors_have_a_place_and_a_reason(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(GrammarError) as error:
        CFGGuide(text, BYTES)
    assert reason in error.value.reason
    assert (error.value.line, error.value.column) == (line, column)


def test_terminals_that_take_too_large_an_automaton() -> None:
    with pytest.raises(LimitError, match="automaton of more than 50,000 states"):
        CFGGuide("start: A\nA: /[ab]*a[ab]{20}/ & /[ab]*/", BYTES)
    with pytest.raises(LimitError, match="nested too deep"):
        CFGGuide("start: %json " + "[" * 100_000, BYTES)
