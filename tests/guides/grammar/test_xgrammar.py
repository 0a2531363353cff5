"""What XGrammar's EBNF adds to GBNF, against its matcher."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from trellm import Vocabulary
from trellm.errors import GrammarError, LimitError
from trellm.guides import CFGGuide, laws
from trellm.guides.grammar import is_gbnf, parse_gbnf

from ..vocabularies import SMALL

BYTES = Vocabulary.from_bytes()
TEXTS = ["".join(letters) for size in range(6) for letters in product("abc", repeat=size)]


def accepts(guide: CFGGuide, text: str) -> bool:
    state = guide.automaton.read(guide.start, text.encode())
    return state >= 0 and guide.automaton.is_accepting(state)


@pytest.fixture(scope="module")
def peer() -> Callable[[str], Callable[[str], bool]]:
    """Gives a function that tells whether XGrammar takes a text for one of a grammar."""
    xgrammar = pytest.importorskip("xgrammar")
    testing = pytest.importorskip("xgrammar.testing")

    def matcher(grammar: str) -> Callable[[str], bool]:
        read = xgrammar.Grammar.from_ebnf(grammar)
        return lambda text: testing._is_grammar_accept_string(read, text)

    return matcher


CORPUS = [
    ('root ::= "a\\?" | "\\b\\f\\a\\v\\0\\e\\/\\\'"', ["a?", "\b\f\a\v\0\x1b/'", "a"]),
    ("root ::= [\\?\\*\\.\\+\\(\\)\\{\\}\\|\\/\\^\\$\\-]+", ["?*.+(){}|/^$-", "a", "\\"]),
    ('root ::= a.b a-b | "z"\na.b ::= "x"\na-b ::= "y"', ["xy", "z", "x"]),
    ('root ::= "a"{2,-1} ("b"+)+ ( ) "c"{0} "" | [^]', ["aab", "aaabb", "a", "ab", "\n"]),
    ('root ::= b "d" (= "z")\nb ::= "x" | "y" (= "c" x)\nx ::= "x"', ["xd", "yd", "xc", "xdz"]),
    ('root ::= "a" (= ("z"))\n\nx ::= "b"', ["a", "az"]),
    ('root ::= Substring("ab", "c", "", "é") "!"', ["!", "ab!", "abcé!", "cé!", "a!", "b!", "abé!"]),
    ('root ::= (Substring("a b") | Substring()) "."', [".", "a b.", "a."]),
    ('root ::= Regex("a+b|\\\\d[^a]") Regex(".\\\\w?")', ["aabx", "5bc", "5\n\n", "٣bc", "5a", "abé"]),
    ('root ::= Regex("^(?:x|y){2}$")', ["xy", "xyx", "x"]),
    ('root ::= (TagDispatch(("<t>", t)) "z"){2}\nt ::= "x"', ["zz", "<t>xzz", "a<t>x<zz", "<t>z", "z"]),
    ('root ::= TagDispatch(("ab", t))\nt ::= "c" root', ["abc", "abcab", "abcabc", "ab"]),
    ('root ::= TagDispatch(("é", t), excludes=("è",))\nt ::= "x"', ["éx", "è", "ê", "é"]),
    ('root ::= TagDispatch(("ab", t), ("ab", u))\nt ::= "c"\nu ::= "d"', ["abc", "abdx", "abe"]),
    ('root ::= TagDispatch(excludes=("a", "bc",))', ["", "bbb", "bc", "a"]),
    ('root ::= TagDispatch() "."', [".", "ab..", "a"]),
]


@pytest.mark.parametrize(("grammar", "texts"), CORPUS)
def test_the_language_is_that_of_xgrammar(
    grammar: str, texts: list[str], peer: Callable[[str], Callable[[str], bool]]
) -> None:
    guide, takes = CFGGuide(grammar, BYTES), peer(grammar)
    found = [accepts(guide, text) for text in texts]
    assert found == [takes(text) for text in texts]
    assert any(found) and not all(found)


def test_random_dispatches_are_those_of_xgrammar(peer: Callable[[str], Callable[[str], bool]]) -> None:
    random = Random(2)
    words = ["".join(letters) for size in (1, 2, 3) for letters in product("abc", repeat=size)]
    compared = 0
    while compared < 40:
        triggers = random.sample(words, random.randint(1, 3))
        excluded = [word for word in random.sample(words, random.randrange(3)) if not _begins(word, triggers)]
        # Of triggers within one another we refuse the grammar, and XGrammar reads none within what is excluded.
        if any(one != other and one in other for one in triggers for other in [*triggers, *excluded]):
            continue
        loops = random.choice(["", ", loop_after_dispatch=true", ", loop_after_dispatch=false"])
        pairs = ", ".join(f'("{trigger}", r{number % 2})' for number, trigger in enumerate(triggers))
        excludes = f", excludes=({', '.join(map(quoted, excluded))})" if excluded else ""
        grammar = f'root ::= TagDispatch({pairs}{excludes}{loops})\nr0 ::= "c" | "ab"\nr1 ::= "" | "b" r0\n'
        guide, takes = CFGGuide(grammar, BYTES), peer(grammar)
        for text in random.sample(TEXTS, 60):
            assert accepts(guide, text) == takes(text), (grammar, text)
        compared += 1


def _begins(word: str, triggers: list[str]) -> bool:
    """XGrammar refuses what is excluded where a trigger begins with it."""
    return any(trigger.startswith(word) for trigger in triggers)


def quoted(word: str) -> str:
    return f'"{word}"'


def test_a_dispatch_keeps_the_laws_of_guides() -> None:
    laws.check(
        CFGGuide('root ::= TagDispatch(("a ", t), excludes=("bb",)) Substring("a", "b")\nt ::= "b" | "a" t', SMALL)
    )


def test_names_that_look_like_macros_or_have_points() -> None:
    assert str(parse_gbnf('root ::= Regex ("a") x.y\nRegex ::= "b"\nx ::= "c"\ny ::= "d"')).startswith(
        'root: Regex "a" x [^] y\n'
    )
    assert is_gbnf('root[capture] ::= "a"') and is_gbnf('a.b ::= "a"')


ERRORS = [
    ('root[temperature=0.5] ::= "a"', 1, 5, "the attribute 'temperature' is not supported"),
    ('root[max_tokens=5] ::= "a"', 1, 5, "the attribute 'max_tokens' is not supported"),
    ('root[capture=x] ::= "a"', 1, 5, "the name of a capture must be a text in double quotes"),
    ('root[capture] ::= a "b"? root | "c"\na ::= "d"?', 1, 1, "the rule 'root' has a capture"),
    ('root[ab] ::= "a"', 1, 5, "[ab] is no attribute; rules have [capture]"),
    ("root ::= TagDispatch(t)", 1, 10, "each argument of TagDispatch must be a trigger with its rule"),
    ('root ::= TagDispatch(("", root))', 1, 10, "triggers must be texts in double quotes that are not empty"),
    ('root ::= TagDispatch(("a", t))', 1, 28, "the rule 't' is not defined"),
    ('root ::= TagDispatch(("a", root), ("ba", root))', 1, 10, "the trigger 'a' is a part of the trigger 'ba'"),
    (
        'root ::= TagDispatch(("a", root), stop_eos=true)',
        1,
        10,
        "'stop_eos' is not supported; its named arguments are",
    ),
    ('root ::= TagDispatch(("a", root), loop_after_dispatch=5)', 1, 10, "loop_after_dispatch must be true or false"),
    ('root ::= TagDispatch(("a", root), excludes=(x,))', 1, 10, "the excluded texts of TagDispatch must be texts"),
    ("root ::= Substring(5)", 1, 10, "the arguments of Substring must be texts"),
    ('root ::= Substring("a", by="word")', 1, 10, "'by' is not supported; this macro has no named arguments"),
    ('root ::= Regex("a", "b")', 1, 10, "Regex takes one pattern"),
    ('root ::= Regex("(a")', 1, 10, "in the pattern of Regex: this group is never closed"),
    ('root ::= Regex("a", json_string=true)', 1, 10, "'json_string' is not supported"),
    ('root ::= Substring("a" "b")', 1, 24, "expected ',' or ')' behind an argument"),
    ("root ::= Substring(", 1, 20, "a text, a name or '(' among the arguments, found the end"),
    ('root ::= "a" (= "b") "b"', 1, 14, "must be at the end"),
    ('root ::= ("a" (= "b"))', 1, 15, "must be at the end"),
    ('root ::= "a" (= "b"', 1, 14, "must be at the end"),
    ('root ::= "\\$"', 1, 11, "unknown escape"),
    ("root ::= [\\d]", 1, 11, "unknown escape"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), ERRORS)
def test_errors_have_a_place_and_a_reason(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(GrammarError) as error:
        parse_gbnf(text)
    assert reason in error.value.reason
    assert (error.value.line, error.value.column) == (line, column)


def test_arguments_nested_too_deep() -> None:
    with pytest.raises(LimitError, match="max_depth=100"):
        parse_gbnf("root ::= Substring(" + "(" * 200)
