"""Random grammars in Lark's language and in GBNF: by rule sets, and by changes to known ones."""

from __future__ import annotations

from random import Random

from .mutation import changed_text, size, word
from .regexes import alternation

LARK_PIECES = [
    "|", "(", ")", "[", "]", "*", "+", "?", "~2", "~0..3", "~5..2", "~99999999", '"a"', '""', '"a"i', "/a+/", "/(/",
    "/a*/i",
    "a", "B", "start", "start: start\n", "%ignore B\n", "%import common.INT\n", "%import common.NOPE\n", "%declare X\n",
    "->", "?", "!", "_", ".2", "{", "}", "a{B}", ":", "\n", "//", '"a".."z"', '"z".."a"', "start: ",
    "%extend a: \"x\"\n",
    "%override start: \"a\"\n", "quote(c)", "\\", '"\\ud800"', '"\\x00"', "/(?=a)b/", "\t", "&", "<",
    "template{x}: x\n",
]  # fmt: skip
GBNF_PIECES = [
    "|", "(", ")", "*", "+", "?", "{2}", "{0,3}", "{5,2}", "{99999999}", '"a"', '""', "[a-z]", "[^", "[]", ".", "a",
    "root",
    "root ::= root\n", "::=", "\n", "#", "\\x41", '"\\u0041"', "[^\\n]", "-", '"\\', "<think>", "!<a>", "[1]",
]  # fmt: skip
LARK_KNOWN = [
    'start: start start | "a"', 'start: "a" start "b" |', 'start: a | b\na: b | "x"\nb: a | "y"',
    "start: A B\nA: /a*/\nB: /a+/",
    'start: e\ne: e "+" e | e "*" e | "(" e ")" | /[0-9]+/', 'start: "a"~3..100 start?',
    "start: w+\nw: /[a-z]+/\n%ignore \" \"",
    'start: a{"x"} a{b}\na{i}: i ("," i)*\nb: "b"', 'start: quote(c) "!" quote(c)', "start: [a] [a] [a]\na: \"x\"?",
    'start: KEY "=" VALUE\nKEY: /(?!if\\b)[a-z]+/\nVALUE: /"[^"]*"/', "start: (start | \"b\")* \"c\"",
]  # fmt: skip
GBNF_KNOWN = [
    'root ::= "a" root "b" | ""', 'root ::= root root | "a"', 'root ::= item+\nitem ::= "- " [^\\n]+ "\\n"',
    'root ::= [a-z]{2,5} ("," [a-z]{2,5}){0,9}', 'root ::= a | b\na ::= b "x" | "y"\nb ::= a "z" | ""',
    'root ::= ([0-9] | root)*',
    'root ::= "{" ws (pair ("," ws pair)*)? "}"\npair ::= "\\"" [a-z]* "\\":" ws root\nws ::= [ \\t]*',
]  # fmt: skip


def lark(random: Random, known: list[str]) -> str:
    """A random grammar in Lark's language."""
    draw = random.random()
    if draw < 0.5:
        return _lark_rules(random)
    if draw < 0.97:
        return changed_text(random, random.choice(known), known, LARK_PIECES)
    return large(random)


def gbnf(random: Random, known: list[str]) -> str:
    """A random grammar in GBNF."""
    if random.random() < 0.5:
        return _gbnf_rules(random)
    return changed_text(random, random.choice(known), known, GBNF_PIECES)


def large(random: Random) -> str:
    """A grammar in Lark's language that is long, or nested deeply, or ambiguous."""
    many = random.choice([30, 300, 3000, 20_000])
    shapes = [
        lambda: "start: " + " | ".join(f'"{index}x"' for index in range(many)),
        lambda: "start: r0\n" + "\n".join(f'r{i}: "a" r{i + 1} | r{i + 1}' for i in range(many)) + f'\nr{many}: "b"',
        lambda: (
            "start: r0\n"
            + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(min(many, 300)))
            + f'\nr{min(many, 300)}: "b"?'
        ),
        lambda: "start: " + "(" * many + '"a"' + ")" * many,
        lambda: "start: " + "[" * min(many, 3000) + '"a"' + "]" * min(many, 3000),
        lambda: "start: " + "start? " * min(many, 300) + '"a"',
        lambda: (
            "start: "
            + " | ".join(f"r{i}" for i in range(30))
            + "\n"
            + "\n".join(f'r{i}: "a" start?' for i in range(30))
        ),
        lambda: f'start: ("a" | "b" start)~0..{many}',
        lambda: 'start: "' + "x" * 30 * many + '"',
    ]
    return random.choice(shapes)()


def _lark_rules(random: Random) -> str:
    rules = ["start", *"abcde"[: random.randint(0, 4)]]
    terminals = list("ABC"[: random.randint(0, 3)])
    lines = [
        f"{random.choice(['', '', '', '?', '!'])}{rule}: {_lark_options(random, rules + terminals, 2)}"
        for rule in rules
    ]
    lines += [f"{name}: {_lark_terminal(random, terminals)}" for name in terminals]
    if random.random() < 0.2:
        lines.append(f"%ignore {random.choice(terminals or ['/ /'])}")
    return "\n".join(lines)


def _lark_options(random: Random, names: list[str], depth: int) -> str:
    return " | ".join(
        " ".join(_lark_item(random, names, depth) for _ in range(random.choice([0, 1, 2, 2, 3])))
        for _ in range(random.choice([1, 1, 2, 3]))
    )


def _lark_item(random: Random, names: list[str], depth: int) -> str:
    draw = random.random()
    if depth and draw < 0.25:
        inside = _lark_options(random, names, depth - 1)
        made = f"({inside})" if draw < 0.17 else f"[{inside}]"
    elif draw < 0.65:
        made = random.choice(names)
    else:
        made = _lark_text(random)
    return made + (
        random.choice(["?", "*", "+", f"~{size(random)}", f"~0..{size(random)}"]) if random.random() < 0.25 else ""
    )


def _lark_terminal(random: Random, names: list[str]) -> str:
    parts = [
        _lark_text(random) if random.random() < 0.97 else random.choice(names)
        for _ in range(random.choice([1, 1, 2, 3]))
    ]
    return random.choice([" ", " | "]).join(parts)


def _lark_text(random: Random) -> str:
    if random.random() < 0.3:
        known = ["[a-c]", "[^x]", "a|bb", "[0-9]+", "é", "x?y", ".", "(ab)+", "(?!a)[a-z]"]
        made = random.choice(known) if random.random() < 0.8 else alternation(random, 1, False)
        made = made.replace("/", "").replace("\n", "")
        return f"/{made or 'x'}/" + random.choice(["", "", "", "i", "s"])
    return '"' + "".join(random.choice("aabbxyé ") for _ in range(random.choice([0, *[1] * 9, *[2] * 6, 3]))) + '"'


def _gbnf_rules(random: Random) -> str:
    rules = ["root", *"abcd"[: random.randint(0, 4)]]
    return "\n".join(f"{rule} ::= {_gbnf_options(random, rules, 2)}" for rule in rules)


def _gbnf_options(random: Random, names: list[str], depth: int) -> str:
    return " | ".join(
        " ".join(_gbnf_item(random, names, depth) for _ in range(random.choice([1, 1, 2, 3])))
        for _ in range(random.choice([1, 1, 2, 3]))
    )


def _gbnf_item(random: Random, names: list[str], depth: int) -> str:
    draw = random.random()
    if depth and draw < 0.25:
        made = f"({_gbnf_options(random, names, depth - 1)})"
    elif draw < 0.6:
        made = random.choice(names)
    elif draw < 0.8:
        made = f"[{random.choice(['', '^'])}{random.choice(['a-c', 'xyz', '0-9', 'é', ' '])}]"
    else:
        made = '"' + word(random, 3).replace("\\", "").replace('"', "").replace("\n", "") + '"'
    return made + (
        random.choice(["?", "*", "+", f"{{{size(random)}}}", f"{{0,{size(random)}}}"]) if random.random() < 0.25 else ""
    )
