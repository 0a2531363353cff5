"""What the constructs of Lark's grammar language mean here."""

import pytest
from trellm.errors import LimitError
from trellm.guides.grammar import Grammar, Literal, Reference, Repeat, Sequence, check, parse_lark

from ..chart.naive_grammar import accepts


def language(grammar: Grammar, *texts: str) -> list[str]:
    return [text for text in texts if accepts(grammar, text.encode())]


def body(text: str, rule: str = "start") -> str:
    """The body of a rule as it is printed."""
    line = next(line for line in str(parse_lark(text)).splitlines() if line.startswith(f"{rule}:"))
    return line.removeprefix(f"{rule}: ")


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ('"a" "b"', '"a" "b"'),
        ('"a" | "b" |', '"a" | "b" | ""'),
        ('["a" "b"]', '("a" "b")?'),
        ('("a" | "b")+ "c"* "d"?', '("a" | "b")+ "c"* "d"?'),
        ('"a"~3 "b" ~ 2..4', '"a"{3} "b"{2,4}'),
        ('"a" -> one | "b" -> two', '"a" | "b"'),
        ('(("a"))', '"a"'),
        ('"\\n\\t\\x41\\u20ac\\U0001F600\\\\\\"\\d"', '"\\n\\tA€😀\\\\\\"\\\\d"'),
        ('"aé"i', "[Aa] [Éé]"),
        ('"a".."f"', "[a-f]"),
        ('"\\u0000".."\\U0010ffff"', "[^]"),
        ("/[a-c]+x/", '[a-c]+ "x"'),
        ("/a b # c\n/x", '"ab"'),
        ("/./s", "[^]"),
        ("/AB/i", "[Aa] [Bb]"),
        ("/a\\/b/", '"a/b"'),
        ('"a" // a comment', '"a"'),
        ('"a" # a comment', '"a"'),
        ('"a"\n  // between\n  | "b"\n\n  | "c"', '"a" | "b" | "c"'),
        ('"a" \\\n "b"', '"a" "b"'),
        ('"a"\r\n | "b"', '"a" | "b"'),
    ],
)
def test_expansions(written: str, printed: str) -> None:
    assert body(f"start: {written}\n") == printed


@pytest.mark.parametrize("head", ["start", "?start", "!start", "!?start", "?!start", "start.2", "?start.-1"])
def test_modifiers_and_priorities_do_not_change_the_language(head: str) -> None:
    assert body(f'{head}: _inner A\n_inner: "x"\nA.10: "a"') == "_inner A"


def test_terminals_are_rules_that_refer_to_terminals_only() -> None:
    grammar = parse_lark('start: NUMBER sign\nsign: "-"\nNUMBER: DIGIT+ ["." DIGIT~1..2]\nDIGIT: "0".."9"')
    assert grammar.terminals == {"NUMBER", "DIGIT"}
    assert grammar.lines == {"start": 1, "sign": 2, "NUMBER": 3, "DIGIT": 4}
    assert language(grammar, "1-", "12.34-", "1.-", "1.234-", "1") == ["1-", "12.34-"]


def test_ignored_terminals_stand_between_terminals_and_around_the_text() -> None:
    grammar = parse_lark('start: WORD ("," WORD)*\nWORD: /[a-z]+/\n%ignore " "\n%ignore /#[^\\n]*\\n/')
    assert grammar.start == "__BEGIN"
    assert str(grammar).endswith("__BEGIN: __IGNORED start\n")
    texts = ["a,b", " a , b ", "#x\na,#y\n#z\nb ", "a b", ",a"]
    assert language(grammar, *texts) == texts[:3]


def test_ignored_terminals_do_not_enter_terminals() -> None:
    grammar = parse_lark('start: WORD\nWORD: LETTER~2\nLETTER: /[a-z]/\n%ignore " "')
    assert language(grammar, "ab", " ab ", "a b") == ["ab", " ab "]


def test_a_terminal_may_be_the_start() -> None:
    grammar = parse_lark('A: "a"\n%ignore " "', start="A")
    assert language(grammar, "a", " a ", "aa") == ["a", " a "]


def test_imports_can_be_renamed_listed_and_extended() -> None:
    grammar = parse_lark(
        'start: N WORD\n%import common.INT -> N\n%import common (WORD, WS)\n%ignore WS\n%extend N: "x"'
    )
    assert language(grammar, "12 ab", "x ab", "ab") == ["12 ab", "x ab"]


def test_override_and_extend() -> None:
    text = 'start: a b\na: "x"\nb: "y"\n%override a: "z"\n%extend b: "w" | "v"'
    assert language(parse_lark(text), "zy", "zw", "zv", "xy") == ["zy", "zw", "zv"]


def test_templates_are_written_out_once_for_each_list_of_arguments() -> None:
    text = 'start: list{"a", ","} list{B, ";"} list{"a", ","}\nlist{item, mark}: item (mark item)*\nB: "b"'
    grammar = parse_lark(text)
    assert list(grammar.rules) == ["B", "start", 'list{"a",","}', 'list{B,";"}']
    assert language(grammar, "aba", "a,ab;b;ba,a", "b;ba") == ["aba", "a,ab;b;ba,a"]


def test_templates_take_templates_and_call_each_other() -> None:
    text = """
        start: twice{quoted, word} | quoted{quoted{word}}
        twice{f, x}: f{x} f{x}
        quoted{x}: "<" x ">"
        word: "a" | "b"
    """
    assert language(parse_lark(text), "<a><b>", "<<a>>", "<a>", "<<a>") == ["<a><b>", "<<a>>"]


def test_templates_may_be_recursive() -> None:
    grammar = parse_lark('start: nest{"x"}\nnest{x}: x | "(" nest{x} ")"')
    assert language(grammar, "x", "((x))", "(x") == ["x", "((x))"]


def test_long_instance_names_stay_apart() -> None:
    long = "x" * 200
    grammar = parse_lark(f'start: t{{"{long}a"}} t{{"{long}b"}}\nt{{x}}: x')
    assert language(grammar, f"{long}a{long}b", f"{long}a{long}a") == [f"{long}a{long}b"]


def test_a_name_is_kept_from_being_a_keyword_by_looking_ahead() -> None:
    grammar = parse_lark("start: NAME\nNAME: /(?!(if|else)\\b)[a-z]+/")
    assert language(grammar, "if", "else", "iffy", "i", "elsewhere") == ["iffy", "i", "elsewhere"]


def test_looking_around_sees_only_the_text_of_the_terminal() -> None:
    grammar = parse_lark('start: A B\nA: /x(?!xb)x?/\nB: "xb"')
    assert language(grammar, "xxb", "xxxb") == ["xxb", "xxxb"]


def test_nodes_are_plain_syntax() -> None:
    grammar = parse_lark('start: "a" b~2\nb: "c"')
    assert grammar.rules["start"] == Sequence((Literal(b"a"), Repeat(Reference("b"), 2, 2)))


def test_many_alternatives() -> None:
    lines = "\n    | ".join(f'"{i}" b' for i in range(20_000))
    grammar = parse_lark(f"start: {lines}\nb: /x/\n")
    assert check(grammar) == []
    assert grammar.lines["b"] == 20_001


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("start: " + "(" * 10_000 + '"a"' + ")" * 10_000, "max_depth=100"),
        ("start: " + "[" * 10_000, "max_depth=100"),
        ("start: " + "a{" * 10_000, "max_depth=100"),
        ('start: a{"x"}\na{x}: "z" | a{b{x}}\nb{x}: x', "max_rules=1000"),
        ("start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(1000)) + 'a1000: "x"', "max_rules=1000"),
    ],
)
def test_limits_name_the_option_that_raises_them(text: str, limit: str) -> None:
    with pytest.raises(LimitError, match=limit):
        parse_lark(text, max_rules=1000)


def test_chains_of_terminals_may_be_long() -> None:
    count = 5_000
    chain = "".join(f'T{i}: T{i + 1} "x"\n' for i in range(count))
    grammar = parse_lark(f'start: T0\n{chain}T{count}: "y"\n')
    assert len(grammar.rules) == count + 2
