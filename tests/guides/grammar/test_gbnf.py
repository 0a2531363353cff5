"""GBNF: what its constructs mean, and what is wrong with a grammar, where."""

import json
import re
from random import Random

import pytest
from trellm.errors import GrammarError, LanguageError, LimitError
from trellm.guides.grammar import parse_gbnf, parse_lark

from ..chart.naive_grammar import accepts
from .documentation import load
from .sampling import sample

JSON = r"""
# JSON, in the manner of llama.cpp's own example
root   ::= ws value
value  ::= (object | array | string | number | "true" | "false" | "null") ws
object ::=
  "{" ws (
    string ws ":" ws value
    ("," ws string ws ":" ws value)*
  )? "}"
array  ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" (
    [^"\\\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws     ::= [ \t\n\r]*
"""


def body(text: str) -> str:
    return str(parse_gbnf(text)).splitlines()[0].removeprefix("root: ")


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ('"a" "b"', '"a" "b"'),
        ('"a" | "b" |', '"a" | "b" | ""'),
        ('""', '""'),
        ('("a" | "b")+ "c"* "d"?', '("a" | "b")+ "c"* "d"?'),
        ('"a"{3} "b"{2,} "c"{0,4} "d"{ 1 , 2 }', '"a"{3} "b"{2,} "c"{0,4} "d"{1,2}'),
        ('"a"*?', '"a"*?'),
        ('"a\\n\\"\\x41\\u20ac\\U0001F600"', '"a\\n\\"A€😀"'),
        ("[a-cx]", "[a-cx]"),
        ("[-a]", "[\\-a]"),
        ("[a-]", "[\\-a]"),
        ("[\\]\\-\\\\]", "[\\-\\\\\\]]"),
        ('[^"\\\\]', '[^"\\\\]'),
        ("[^]", "[^]"),
        (".", "[^]"),
        ("[\\x00-\\U0010FFFF]", "[^]"),
        ('"a"\n  | "b"\n  # between\n  | "c"', '"a" | "b" | "c"'),
        ('\'a"\' , "b" ;', '"a\\"" "b"'),
        ('"a" (* a comment *) "b" # another', '"a" "b"'),
    ],
)
def test_expressions(written: str, printed: str) -> None:
    assert body(f"root ::= {written}\n") == printed
    assert body(f"root = {written}") == printed


def test_rules_end_where_the_next_begins() -> None:
    grammar = parse_gbnf('root ::= item-1\n  item_2 # x\nitem-1 ::= "a"\n\nitem_2 = "b" ; x = "c"')
    assert list(grammar.rules) == ["root", "item-1", "item_2", "x"]
    assert grammar.lines == {"root": 1, "item-1": 3, "item_2": 5, "x": 5}
    assert accepts(grammar, b"ab")


def test_start_can_be_chosen() -> None:
    assert accepts(parse_gbnf('a ::= "x" b\nb ::= "y"', start="b"), b"y")


def test_left_recursion_is_no_obstacle() -> None:
    grammar = parse_gbnf('root ::= root "+" [0-9] | [0-9]')
    assert accepts(grammar, b"1+2+3")


def test_json_is_the_same_language_in_both_notations() -> None:
    gbnf, lark = parse_gbnf(JSON), parse_lark(load("json"))
    random = Random(1)
    for budget in range(5, 60, 3):
        for grammar, other in ((gbnf, lark), (lark, gbnf)):
            text = sample(grammar, random, budget)
            json.loads(text)
            assert accepts(other, text)
            cut = text[: random.randint(0, len(text))]
            assert accepts(grammar, cut) == accepts(other, cut)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("root ::= a", 1, 10, "the rule 'a' is not defined"),
        ('root "x"', 1, 6, "expected '::=' after 'root', found '\"x\"'"),
        ('"x"', 1, 1, "expected a rule such as 'name ::= ...', found '\"x\"'"),
        ('root ::= "x', 1, 10, 'a string that does not end on its line; expected a closing "'),
        ("root ::= 'x\n'", 1, 10, "expected a closing '"),
        ("root ::= [ab", 1, 10, "expected a closing ]"),
        ("root ::= []", 1, 10, "a set without characters matches nothing"),
        ("root ::= [az-a]", 1, 12, "the range is empty"),
        ('root ::= ("x"\n("y"', 2, 5, "expected ')' to close the '(' of line 2, found the end of the grammar"),
        ('root ::= "x")', 1, 13, "expected a string, a set of characters, a name"),
        ('root ::= ("x"\na ::= "y"', 2, 1, "expected ')' to close the '(' of line 1"),
        ("root ::= | *", 1, 12, "something to repeat before the operator, found '*'"),
        ("root ::= {2}", 1, 10, "something to repeat before the operator"),
        ('root ::= "a"{3,2}', 1, 13, "{3,2} is no range of repeats"),
        ('root ::= "a"{,2}', 1, 13, "expected a number of repeats: {m}, {m,} or {m,n}"),
        ('root ::= "a"{1111111111}', 1, 13, "at most 9 digits"),
        ('root ::= "a\\q"', 1, 12, "unknown escape"),
        ('root ::= "\\x4"', 1, 11, "unknown escape"),
        ("root ::= [\\ud800]", 1, 11, "U+D800 is no character"),
        ("root ::= a & b", 1, 12, "unexpected character '&'"),
        ('root ::= "a"\nroot ::= "b"', 2, 1, "'root' is defined more than once"),
        ('a ::= "a"', 1, 1, "no rule named 'root' to start from; there are a"),
    ],
)
def test_errors_have_a_place_and_a_reason(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)) as error:
        parse_gbnf(text)
    assert (error.value.line, error.value.column) == (line, column)


def test_endless_rules_are_named() -> None:
    with pytest.raises(LanguageError, match=r"rule loop \(line 2\) can never finish"):
        parse_gbnf('root ::= "a" | loop\nloop ::= "b" loop')


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("root ::= " + "(" * 60_000, "max_depth=100"),
        ('root ::= "a"' + "*" * 60_000, "max_depth=100"),
        ("".join(f'r{i} ::= "a"\n' for i in range(1001)), "max_rules=1000"),
    ],
)
def test_limits_name_the_option_that_raises_them(text: str, limit: str) -> None:
    with pytest.raises(LimitError, match=limit):
        parse_gbnf(text, max_rules=1000)


def test_many_alternatives() -> None:
    grammar = parse_gbnf("root ::= " + " | ".join(f'"{i}"' for i in range(20_000)))
    assert len(grammar.rules) == 1
