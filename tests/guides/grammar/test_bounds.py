"""What no grammar may do: take long, or break off with an error of somebody else's."""

import contextlib

import pytest
from trellm import Limits, Vocabulary
from trellm.errors import GrammarError, LanguageError, LimitError, OptionError
from trellm.guides import CFGGuide, RegexGuide
from trellm.guides.grammar import parse_gbnf, parse_lark

from ..support import Meter

BYTES = Vocabulary.from_bytes()

LARK = {
    "rules": lambda n: "start: r0\n" + "".join(f'r{i}: "a{i}" | "b{i}" r{(7 * i + 1) % n} "c"\n' for i in range(n)),
    "terminals": lambda n: (
        f"start: {' | '.join(f'T{i}' for i in range(n))}\n" + "".join(f'T{i}: "{i}"\n' for i in range(n))
    ),
    "alternatives": lambda n: "start: " + " | ".join(f'"word{i}"' for i in range(n)),
    "alternatives on lines": lambda n: 'start: "a"' + "".join(f'\n | "word{i}"' for i in range(n)),
    "a sequence": lambda n: "start: " + " ".join(f'"w{i}"' for i in range(n)),
    "a literal": lambda n: f'start: "{"x" * n}"',
    "brackets": lambda n: "start: " + '("a")' * n,
    "comments": lambda n: "// hello\n" * n + 'start: "a"\n',
    "empty lines": lambda n: "\n" * n + 'start: "a"\n',
    "lines with blanks": lambda n: 'start: "a"' + " \r\n\t" * n,
    "a long name": lambda n: f'start: {"a" * n}\n{"a" * n}: "x"',
    "a chain": lambda n: "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(n)) + f'r{n}: "a"\n',
    "a chain of templates": lambda n: (
        'start: t0{"a"}\n' + "".join(f't{i}{{x}}: x t{i + 1}{{x}} "b" | x\n' for i in range(n)) + f"t{n}{{x}}: x\n"
    ),
    "a long argument": lambda n: (
        f'start: t0{{"{"a" * n}"}}\n'
        + "".join(f't{i}{{x}}: "a" t{i + 1}{{x}} | "b"\n' for i in range(n))
        + f"t{n}{{x}}: x\n"
    ),
    "extensions": lambda n: 'start: "a"\n' + "".join(f'%extend start: "b{i}"\n' for i in range(n)),
    "ignored terminals": lambda n: 'start: "a"\n' + "".join(f'T{i}: "{i}"\n%ignore (T{i}|"b")\n' for i in range(n)),
    "a terminal used again": lambda n: f'start: T\nT: {"B " * n}\nB: {"C " * n}\nC: "a"\n',
    "open sets": lambda n: f"start: /{'[' * n}/",
}
GBNF = {
    "rules": lambda n: (
        "root ::= r0\n" + "".join(f'r{i} ::= "a{i}" | "b{i}" r{(7 * i + 1) % n} "c"\n' for i in range(n))
    ),
    "alternatives": lambda n: "root ::= " + " | ".join(f'"word{i}"' for i in range(n)),
    "a sequence": lambda n: "root ::= " + " ".join(f'"w{i}"' for i in range(n)),
    "sets": lambda n: "root ::= " + " ".join(f"[a-z{chr(200 + i)}]" for i in range(n)),
    "comments that are never closed": lambda n: "(*" * n + 'root ::= "a"',
    "comments": lambda n: "(* a *) # b\n" * n + 'root ::= "a"',
    "blanks in bounds": lambda n: 'root ::= "a"{1,' + " " * n,
    "strings that are never closed": lambda n: 'root ::= "' + "a" * n,
}


@pytest.mark.parametrize("read", [parse_lark, parse_gbnf])
def test_twice_the_grammar_takes_twice_the_work(read: object) -> None:
    for kind, make in (LARK if read is parse_lark else GBNF).items():
        spent: list[int] = []
        for size in (300, 600):
            with Meter() as meter:
                with contextlib.suppress(GrammarError):
                    read(make(size))  # type: ignore[operator]
                spent.append(meter.spent)
        assert spent[1] <= 2.3 * spent[0] + 10_000, kind


@pytest.mark.parametrize("kind", ["empty lines", "lines with blanks", "open sets"])
def test_long_runs_are_read_at_once(kind: str) -> None:
    """Each was quadratic in the words' pattern, where no work is counted: 100,000 took minutes."""
    try:
        parse_lark(LARK[kind](300_000))
    except GrammarError as error:
        assert "never closed" in str(error)


@pytest.mark.parametrize(
    "kind", ["comments that are never closed", "blanks in bounds", "strings that are never closed"]
)
def test_long_runs_are_read_at_once_in_gbnf(kind: str) -> None:
    with pytest.raises(GrammarError):
        parse_gbnf(GBNF[kind](100_000))


@pytest.mark.parametrize(("syntax", "kinds"), [("lark", LARK), ("gbnf", GBNF)])
def test_work_that_is_too_much_is_refused(syntax: str, kinds: dict[str, object]) -> None:
    for kind in ("rules", "alternatives", "a sequence"):
        with Meter() as meter, pytest.raises(LimitError, match="work="):
            CFGGuide(kinds[kind](20_000), BYTES, syntax=syntax, limits=Limits(work=1_000_000))  # type: ignore
        assert meter.spent < 4_000_000


def test_templates_without_end() -> None:
    endless = 'start: t{"a"}\nt{x}: x t{s{x}} | x\ns{x}: x "b"\n'
    with Meter(Limits(work=10_000_000)), pytest.raises(LimitError, match="work="):
        parse_lark(endless)
    with pytest.raises(LimitError, match="raise max_rules= of parse_lark"):
        parse_lark(endless, max_rules=100)


def test_extensions_and_overrides_in_order() -> None:
    text = (
        'start: a b\na: "1"\nb: "1"\n%extend a: "2"\n%extend b: "2"\n%override b: "3"\n%extend b: "4"\n%extend a: "5"\n'
    )
    guide = CFGGuide(text, BYTES)
    expected = RegexGuide("[125][34]", BYTES)
    for first in "12345":
        for second in "12345":
            data = (first + second).encode()
            assert (guide.automaton.read(guide.start, data) >= 0) == (
                expected.automaton.read(expected.start, data) >= 0
            )


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ('start: "\ud800"', "lark"),
        ("start: /\udfff/", "lark"),
        ('start: "a" // \ud800', "lark"),
        ('root ::= "\ud800"', "gbnf"),
        ("root ::= [\ud800]", "gbnf"),
    ],
)
def test_lone_surrogates(text: str, syntax: str) -> None:
    with pytest.raises(GrammarError, match="lone surrogate") as caught:
        CFGGuide(text, BYTES, syntax=syntax)  # type: ignore[arg-type]
    assert 0xD800 <= ord(text[caught.value.offset]) <= 0xDFFF
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None,), "the grammar must be a text, not None"),
        ((b'start: "a"',), "decode it first"),
        ((["a"],), r"must be a text, not \['a'\]"),
        ((BYTES,), "swapped"),
        (('start: "a"', BYTES, 3), "start=3"),
        (('start: "a"', BYTES, ["start"]), "start="),
        (('start: "a"', BYTES, "\ud800"), "start="),
        (('start: "a"', BYTES, None, "ebnf"), "syntax=.*: one of"),
        (('start: "a"', BYTES, None, ["lark"]), "syntax=.*: one of"),
        (('start: "a"', BYTES, None, "lark", ["a"]), "contexts="),
        (('start: "a"', None), "needs a Vocabulary"),
        ((parse_lark('start: "a"'), BYTES, 5), "start=5"),
    ],
)
def test_wrong_arguments(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CFGGuide(*(arguments if len(arguments) > 1 else (*arguments, BYTES)))  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"max_rules": "many"}, {"max_depth": 0}, {"max_depth": True}, {"max_rules": 1.5}])
def test_wrong_limits(limits: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        parse_lark('start: "a"', **limits)
    with pytest.raises(OptionError, match="whole number"):
        parse_gbnf('root ::= "a"', **limits)


def test_a_grammar_without_texts_is_still_that() -> None:
    with pytest.raises(LanguageError):
        CFGGuide("start: start", BYTES)


# What one byte may begin with: rules beside each other, below each other, and both
AT_ONCE = {
    "alternatives": lambda n: (
        f"start: {' | '.join(f'r{i}' for i in range(n))}\n" + "".join(f'r{i}: "a{i}" r{i // 2}?\n' for i in range(n))
    ),
    "a chain": lambda n: "start: r0\n" + "".join(f'r{i}: "a" r{i + 1} | r{i + 1}\n' for i in range(n)) + f'r{n}: "b"\n',
    "left recursion": lambda n: (
        "start: r0\n" + "".join(f'r{i}: r{(i + 1) % n} "a{i}" | "b{i}" r{i // 2}?\n' for i in range(n))
    ),
}


@pytest.mark.parametrize("kind", AT_ONCE)
def test_twice_the_rules_take_twice_the_work(kind: str) -> None:
    """Rules were asked for one at a time, and each time all was begun anew; a chain of calls was followed from each."""
    spent: list[int] = []
    for size in (300, 600):
        guide = CFGGuide(AT_ONCE[kind](size), BYTES)
        spent.append(guide.automaton.meter.spent)
        for ask in (guide.mask, guide.distance):
            ask(guide.start)
            spent[-1] += guide.automaton.meter.spent
        state = guide.advance(guide.start, b"a"[0])
        guide.mask(state)
        spent[-1] += guide.automaton.meter.spent
    assert spent[1] <= 2.3 * spent[0]
