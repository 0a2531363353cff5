"""What is wrong with a grammar is said where it is, with what was expected."""

import lark
import pytest
from trellm.errors import GrammarError, LanguageError
from trellm.guides.grammar import parse_lark

SYNTAX = [
    ('start: "a', 1, 8, 'closing "'),
    ("start: 'a'", 1, 8, "double quotes"),
    ("start: /ab", 1, 8, "expected a closing /"),
    ("start: /a\nb/", 1, 8, "expected a closing /"),
    ("start: a & b", 1, 10, "'&' needs terminals"),
    ('start "a"', 1, 7, "expected ':' after 'start', found '\"a\"'"),
    ('"a"', 1, 1, "expected a definition such as 'name: ...', or a directive, found '\"a\"'"),
    ('start: "a"\n| "b" )', 2, 7, "the end of the line in 'start', found ')'"),
    ('x: "x"\nstart: (x | [x)', 2, 15, "expected ']' to close the '[' of line 2, found ')'"),
    ('start: ("a"\n | "b"\n', 2, 7, "expected ')' to close the '(' of line 1, found the end of the line"),
    ('start: "a"??', 1, 12, "something to repeat before the operator, found '?'"),
    ("start: * a", 1, 8, "something to repeat before the operator"),
    ('start: "a" ~ x', 1, 14, "expected a number of repeats after '~', found 'x'"),
    ('start: "a" ~ -1', 1, 14, "cannot be negative"),
    ('start: "a" ~ 3..2', 1, 14, "3..2 is no range"),
    ('start: "a" ~ 1111111111', 1, 14, "at most 9 digits"),
    ('start: "a".. b', 1, 14, "expected a string of one character after '..', found 'b'"),
    ('start: "a" -> A', 1, 15, "expected an alias"),
    ('start: "a" -> b "c"', 1, 17, "expected '|' or the end of the line after an alias"),
    ('A: "a" -> b', 1, 8, "a terminal has no aliases"),
    ("start.x: a", 1, 7, "expected a priority"),
    ('start: a{"x"', 1, 13, "expected ',' or '}', found the end of the line"),
    ('a{X}: "x"', 1, 3, "expected a parameter"),
    ('a{x y}: "x"', 1, 5, "expected ',' or '}', found 'y'"),
    ("Aa: b", 1, 1, "names of rules are in lower case, of terminals in upper case; 'A' mixes both"),
    ('start ::= "a"', 1, 7, "'::=' is GBNF's; Lark has ':' after the name of a rule"),
    ("start: %ignore", 1, 8, "found '%ignore'"),
]

LITERALS = [
    ('start: "ab\\xg0"', 1, 11, "expected \\xHH"),
    ('start: "\\u12"', 1, 9, "\\uHHHH"),
    ('start: "\\ud800"', 1, 9, "\\ud800 is no character"),
    ('start: "\\U00110000"', 1, 9, "is no character"),
    ('start: "b".."a"', 1, 8, 'the range "b".."a" is empty'),
    ('start: "a".."bc"', 1, 13, "from one character to another"),
    ('start: "a"i.."b"', 1, 8, "without suffix"),
    ("start: /a/l", 1, 11, "the flag 'l' is not supported"),
    ("start: /a(b/", 1, 10, "never closed"),
    ("start: /(a)\\1/", 1, 12, "backreferences are not supported"),
    ('start: /a"[^"]*?b/', 1, 15, "the lazy repeat '*?' asks for the shortest match"),
    ("start: /a{2,}?/", 1, 10, "the lazy repeat '{2,}?'"),
    ("start: /^a/", 1, 9, "^ looks beyond the text of the terminal"),
    ("start: /a$/", 1, 10, "$ looks beyond"),
    ("start: /if\\b/", 1, 11, "\\b looks beyond"),
    ("start: /(?<!a)b/", 1, 9, "a lookbehind at the beginning looks beyond"),
    ("start: /a|(?:(?<=x)b)/", 1, 14, "a lookbehind at the beginning"),
    ("start: /a(?!b)/", 1, 10, "a lookahead at the end looks beyond"),
    ("start: /(?:a(?=b)|c)/", 1, 13, "a lookahead at the end"),
    ("start: /a(?=b)|c/", 1, 10, "a lookahead at the end"),
]

NAMES = [
    ("start: a", 1, 8, "the rule 'a' is not defined"),
    ('start: "x"\n  | A', 2, 5, "the terminal 'A' is not defined"),
    ('start: B\nB: "b" C', 2, 8, "the terminal 'C' is not defined"),
    ('start: "a"\n%ignore WS', 2, 9, "the terminal 'WS' is not defined"),
    ('start: "a"\nstart: "b"', 2, 1, "'start' is defined more than once"),
    ('%import common.WS\nstart: "a"\nWS: " "', 3, 1, "'WS' is defined more than once"),
    ('%import common.WS\n%import common.INT -> WS\nstart: "a"', 2, 23, "'WS' is defined more than once"),
    ('a: "a"', 1, 1, "no rule named 'start' to start from; there are a"),
    ("", 1, 1, "no rule named 'start' to start from; there are none"),
    ('start: A\nA: "a" b\nb: "b"', 2, 8, "the rule 'b' cannot be used inside a terminal"),
    ('start: "a"\n%ignore start', 2, 9, "nor be ignored; make it a terminal, in upper case"),
    ('start: A\nA: B\nB: C | "x"\nC: A', 4, 4, "the terminal 'A' contains itself"),
    ('start: A\nA: "a" A', 2, 8, "the terminal 'A' contains itself"),
    ("start: t\nt{x}: x", 1, 8, "'t' takes 1 argument in braces, but is given 0"),
    ('start: t{"a"}\nt{x, y}: x y', 1, 8, "'t' takes 2 arguments in braces, but is given 1"),
    ('start: r{"a"}\nr: "r"', 1, 8, "'r' takes 0 arguments in braces, but is given 1"),
    ('start: t{"a"}', 1, 8, "the rule 't' is not defined"),
    ('start: t{"a"}\nt{x}: x{"b"}', 2, 7, "'x' is not a template"),
    ('start: t{"a"}\nt{start}: start', 2, 3, "the parameter 'start' is also the name of a rule"),
    ('start: t{"a", "b"}\nt{x, x}: x', 2, 6, "the parameter 'x' appears twice"),
]

DIRECTIVES = [
    ("%ignore\nstart: A", 1, 8, "expected a terminal, a string or a regular expression after '%ignore'"),
    ("%declare A B", 1, 1, "%declare is not supported"),
    ("start: A\n%foo A", 2, 1, "%foo is not supported; the directives are %import, %ignore, %override, %extend"),
    ("%import python.NAME", 1, 9, "cannot import python.NAME: only terminals of 'common' can be imported"),
    ("%import common.WHITE", 1, 16, "there is no terminal common.WHITE; there are DIGIT"),
    ("%import .other.A", 1, 9, "relative imports are not supported"),
    ('%import "a"', 1, 9, "expected a name to import"),
    ("%import common.WS -> ws", 1, 22, "a terminal's name is in upper case"),
    ("%import common (WS, ws)", 1, 21, "expected a terminal"),
    ("%import common.WS WS", 1, 19, "expected the end of the line"),
    ("%override start: A", 1, 11, "cannot override 'start': it is not defined before"),
    ("%extend start: A", 1, 9, "cannot extend 'start': it is not defined before"),
    ('t{x}: x\n%extend t{y}: "a"', 2, 9, "with other parameters"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), SYNTAX + LITERALS + NAMES + DIRECTIVES)
def test_errors_have_a_place_and_a_reason(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(GrammarError) as error:
        parse_lark(text)
    assert reason in error.value.reason
    assert (error.value.line, error.value.column) == (line, column)
    shown = str(error.value).splitlines()
    assert shown[-1].index("^") - 2 == column - 1
    assert shown[-2].strip() == (text.split("\n")[line - 1]).strip()


REFUSED_BY_LARK_TOO = [case for case in SYNTAX if "digits" not in case[3]] + [
    case for case in NAMES if "parameters" not in case[3] and "more than once" not in case[3]
]


@pytest.mark.parametrize("text", [case[0] for case in REFUSED_BY_LARK_TOO])
def test_lark_refuses_these_as_well(text: str) -> None:
    with pytest.raises((lark.exceptions.LarkError, AssertionError, KeyError)):
        lark.Lark(text, parser="earley", lexer="dynamic_complete").parse("a")


def test_endless_rules_are_named() -> None:
    with pytest.raises(LanguageError, match=r"matches no text: rules start \(line 1\), a \(line 2\) can never finish"):
        parse_lark('start: a\na: a "x" | start')
    with pytest.raises(LanguageError, match=r"matches no text: rule start \(line 1\) can never finish"):
        parse_lark('start: "(" start ")"\n%ignore " "')
