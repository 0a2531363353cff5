"""The grammars of the documentation: what they accept, and that their texts are what they claim to be."""

import ast
import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import lark
import pytest
from trellm import Vocabulary
from trellm.errors import GrammarError
from trellm.guides import CFGGuide
from trellm.guides.grammar import Grammar, check, parse_gbnf, parse_lark

from ..chart.naive_grammar import accepts, viable
from .documentation import FOLDER, NAMES, load
from .sampling import sample

SMALL = 2_000

GOOD = {
    "json": ["0", " [ ] ", '{"a": [1, 2.5e-3, null], "é\\u00e9\\n": {}}', '"\U0001f600"', "\t\n\r -0 "],
    "arithmetic": ["1", "-x1 ^ --2", "sin(0, 1 + 2) * (3 - 4)/5", " 1-2-3 "],
    "csv": ["", "a", "a,b\nc,d", '"a ""b""\n",,\r\n', ",\n,"],
    "sql": [
        "SELECT * FROM t",
        "SELECT a.b AS c, COUNT( * ), SUM(DISTINCT x)/2 FROM t AS u\n LEFT JOIN v ON u.id = v.id;",
        "SELECT a FROM (SELECT b FROM c) AS d WHERE NOT a = 'it''s' AND (b IS NOT NULL OR c NOT IN (1, 2))",
        "SELECT selected FROM t GROUP BY a, b HAVING MAX(a) > 3 ORDER BY a DESC, b LIMIT 10",
    ],
    "functions": [
        "fn f() -> int { return 0; }",
        "fn f(a: int, b: bool) -> bool {\n  let c: int = a * -2; // twice\n  return !b && c < f(a, true);\n}",
        "fn iffy() -> int { if truth { x = 1; } else { while 1 < 2 { } } return iffy(); }",
    ],
    "pgn": [
        "1. e4 e5 2. Nf3 {good} Nc6 1/2-1/2",
        "1. d4 *",
        "1. f3 e5 2. g4 Qh4# 0-1",
        "1. exd8=Q+ O-O-O 2. Nbd7 R1xa2 3. O-O 1-0",
    ],
    "python": [
        "x",
        " not a == b or c if d else lambda x, y: {1: 'a', 2: [k for k in d if k]}",
        "f(1, x=2)[1:](a.b)[:]",
        "((1,), (1, x), (), [])",
        "a not in b is not c < -2 ** -3 // 4",
        '{"a\\n", nota, iffy}',
    ],
}

BAD = {
    "json": [
        "",
        "01",
        "[1,]",
        "'a'",
        '"\t"',
        '"\\x"',
        "tru",
        "{1:2}",
        "+1",
        "1.",
        '"\\ud80"',
        "\f1",
        "nulll",
    ],
    "arithmetic": ["", "1 +", "()", "2x", "f()", "1..2", "(1"],
    "csv": ['"', 'a"b', '"a"b', "a\rb"],
    "sql": [
        "SELECT*FROM t",
        "SELECTa FROM t",
        "SELECT a FROMb",
        "SELECT from FROM t",
        "select a FROM t",
        "SELECT a FROM t WHERE",
        "SELECT a FROM t LIMIT x",
        "SELECT a b FROM t",
        "DELETE FROM t",
    ],
    "functions": [
        "",
        "fn if() -> int { return 0; }",
        "fnf() -> int { return 0; }",
        "fn f() -> int { return true; }",
        "fn f() -> bool { return 1 + 2; }",
        "fn f() -> int { let x: int = 1 < 2; return 0; }",
        "fn f() -> int { }",
    ],
    "pgn": [
        "e4 e5 1-0",
        "1. e4 e5",
        "1. e9 *",
        "1. e8 *",
        "1. Ne4 Pf5 *",
        "0. e4 *",
        "1. e4  e5 *",
        "1. OO *",
    ],
    "python": [
        "",
        "1x",
        "a if b",
        "not",
        "lambdax: x",
        "f(x=1, 2)",
        "'a",
        "01",
        "a b",
        "for",
        "a.if",
        "x = 1",
        "(,)",
    ],
}


@pytest.fixture(scope="module", params=NAMES)
def documented(request: pytest.FixtureRequest) -> tuple[str, Grammar, lark.Lark]:
    text = load(request.param)
    reference = lark.Lark(text, parser="earley", lexer="dynamic_complete", ambiguity="forest")
    return request.param, parse_lark(text), reference


def parses(reference: lark.Lark, text: str) -> bool:
    try:
        reference.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def is_json(text: str) -> bool:
    json.loads(text)
    return True


def is_json_bytes(data: bytes) -> bool:
    try:
        return is_json(data.decode())
    except ValueError:
        return False


def is_csv(text: str) -> bool:
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    return sum(len(row) for row in rows) >= 0


def is_python(text: str) -> bool:
    return isinstance(ast.parse(text.strip(" "), mode="eval"), ast.Expression)


def is_sql(text: str) -> bool:
    """Whether SQLite gets past the syntax: it may well miss tables or object to arguments."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(text)
    except sqlite3.Error as error:
        return not re.search("syntax error|unrecognized token|incomplete input", str(error))
    return True


REFERENCES = {"json": is_json, "csv": is_csv, "python": is_python, "sql": is_sql}


def fenced(kind: str) -> list[str]:
    text = (FOLDER.parent / "grammars.md").read_text(encoding="utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def test_the_page_on_grammars_is_true() -> None:
    greeting, thought, keyword = fenced("lark")
    assert accepts(parse_lark(greeting), b" HELLO  Ann,good night, Bob !")
    assert not accepts(parse_lark(greeting), b"helloAnn.")
    thinking = CFGGuide(thought, Vocabulary.from_bytes())
    assert thinking.is_accepting(thinking.read(thinking.start, b'so\n</think>{"city": "Bern"}'))
    assert thinking.read(thinking.start, b"so\n</think>x") < 0
    names = parse_lark(f"start: NAME\n{keyword}")
    assert [text for text in (b"not", b"nothing", b"or", b"o") if accepts(names, text)] == [b"nothing", b"o"]
    (numbers,) = fenced("gbnf")
    assert accepts(parse_gbnf(numbers), b"[ -12,\n0]")
    (message,) = fenced("text")
    with pytest.raises(GrammarError) as error:
        parse_lark('start: ("a" | "b"\n')
    assert str(error.value) == message.rstrip("\n")
    taken = parse_lark('start: A B\nA: /a+/\nB: "ab"')
    assert accepts(taken, b"aaab")


def test_every_grammar_is_tested() -> None:
    assert sorted(GOOD) == sorted(BAD) == NAMES


def test_accepts_and_refuses_as_lark_does(documented: tuple[str, Grammar, lark.Lark]) -> None:
    name, grammar, reference = documented
    for text in GOOD[name]:
        assert accepts(grammar, text.encode()), text
        assert parses(reference, text), text
        assert all(viable(grammar, text.encode()[:size]) for size in range(0, len(text.encode()), 5))
    for text in BAD[name]:
        assert not accepts(grammar, text.encode()), text
        assert not parses(reference, text), text


def test_random_texts_are_read_by_the_reference(documented: tuple[str, Grammar, lark.Lark]) -> None:
    name, grammar, reference = documented
    random = Random(name)
    for budget in range(3, 60, 3):
        text = sample(grammar, random, budget).decode()
        if len(text) < 60:
            assert accepts(grammar, text.encode()), text
            assert parses(reference, text), text
        assert name not in REFERENCES or REFERENCES[name](text), text


def test_no_rule_is_left_over(documented: tuple[str, Grammar, lark.Lark]) -> None:
    assert check(documented[1]) == []


def test_json_test_suite(shared_data: Path) -> None:
    """All files with a verdict; two files of 100 kB and more, all opening brackets, by their beginning."""
    grammar = parse_lark(load("json"))
    verdicts = {"y": True, "n": False}
    files = [f for f in sorted((shared_data / "json-test-suite" / "test_parsing").iterdir()) if f.name[0] in verdicts]
    assert len(files) == 283
    wrong = [f.name for f in files if accepts(grammar, f.read_bytes()[:SMALL]) != verdicts[f.name[0]]]
    assert wrong == []


def test_json_files_that_may_go_either_way(shared_data: Path) -> None:
    """UTF-8 without a byte order mark is accepted: numbers of any size, escapes of surrogates in any order."""
    grammar = parse_lark(load("json"))
    files = sorted((shared_data / "json-test-suite" / "test_parsing").glob("i_*"))
    assert len(files) == 35
    for file in files:
        assert accepts(grammar, file.read_bytes()) == is_json_bytes(file.read_bytes()), file.name
