"""Random regular expressions: by a grammar of their syntax, and by changes to known ones."""

from __future__ import annotations

from random import Random

from .mutation import changed_text, character, size, word

ATOMS = [
    ".",
    "a",
    "b",
    "é",
    "漢",
    "😀",
    "0",
    " ",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    r"\.",
    r"\n",
    r"\x41",
    r"\u00e9",
]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\Z"]
PYTHON = [r"\a", r"\07", r"\N{BULLET}", r"\U0001F600", r"\1", "(?P=n)", "(?#c)"]
ECMA = [
    r"\p{L}",
    r"\P{Lu}",
    r"\p{Script=Greek}",
    r"\u{1F600}",
    r"\cA",
    "[^]",
    "[]",
    r"\k<n>",
    r"\1",
    r"\p{Nope}",
    r"\-",
]
GROUPS = ["(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?-i:", "(?s:", "(?>", "(?P<n>", "(?<n>", "(?(1)", "(?i)"]
CLASSES = [
    "a-z",
    "0-9",
    "é",
    "^",
    "-",
    r"\d",
    r"\W",
    r"\s",
    r"\]",
    "[",
    "&&",
    "ı",
    "A-z",
    r"\x00-\x1f",
    "z-a",
    "K",
    "\U0001f600",
]
REPEATS = ["*", "+", "?"] * 4 + ["*?", "+?", "??", "*+"]

KNOWN = [
    r"[a-z]+@[a-z]+\.com", r"(a|b)*abb", r"\d{4}-\d{2}-\d{2}", r"(?!foo)[a-z]+", r"(?=.*\d)(?=.*[a-z]).{4,8}",
    r"([^\"\\]|\\.)*", r"(a*)*", r"(a|aa)+$", r"(.*a){20}", r"(x?){30}x{30}", r"[ab]*a[ab]{12}", r"(?i)straße|K|ſ",
    r"\b\w+\b( \b\w+\b)*", r"(?<![0-9])x(?![0-9])", r"((a{0,9}){0,9}){0,9}", r".{0,1000}", r"(?:a{1,100}b?){1,100}",
    r"^$", r"", r"a{2,1}", r"[^\x00-\U0010ffff]", r"(?<=a)b", r"a(?=b)c", r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?",
    r"^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$", r"(?s).*(?=end)end", r"[😀-😎]+[à-ÿ]*", r"(?x) a b # c",
    r"(\w+)\s\1", r"(?(1)a|b)", r"(?>a+)ab", r"a++b", r"(?:(?=a)|(?=b))*[ab]", r"(?!(?!(?!a)))", r"(?:\B.\b)*x?",
]  # fmt: skip
PIECES = [
    *ATOMS,
    *PLACES,
    *PYTHON,
    *ECMA,
    *GROUPS,
    *REPEATS,
    ")",
    "[",
    "]",
    "[^",
    "{",
    "}",
    "{0}",
    "{,3}",
    "{2,}",
    "|",
    "\\",
    "-",
]
PIECES += ["{1,4294967296}", "{65536}", "{1000}", "((((((((", "))))))))", "(?P<", "[[:alpha:]]", "\ud800"]


def pattern(random: Random, known: list[str], ecma: bool) -> str:
    """A random pattern, well formed or not."""
    draw = random.random()
    if draw < 0.55:
        made = alternation(random, random.randint(1, 4), ecma)
    elif draw < 0.98:
        made = changed_text(random, random.choice(known), known, PIECES)
    else:
        made = large(random, ecma)
    return changed_text(random, made, known, PIECES) if random.random() < 0.15 else made


def alternation(random: Random, depth: int, ecma: bool) -> str:
    """Pieces, with | between some of them."""
    return "|".join(_sequence(random, depth, ecma) for _ in range(random.choice([1, 1, 1, 2, 3])))


def large(random: Random, ecma: bool) -> str:
    """A pattern that is long, or nested deeply, or repeats many times."""
    piece = alternation(random, 2, ecma)
    many = random.choice([30, 300, 3000, 30_000])
    shapes = [
        lambda: piece * many,
        lambda: "(" * many + piece + ")" * many,
        lambda: f"({piece})" + f"{{{many}}}",
        lambda: "|".join(word(random, 12).replace("\\", "") for _ in range(min(many, 3000))),
        lambda: "(?:" * min(many, 12) + piece + f"){{0,{random.randint(1, 40)}}}" * min(many, 12),
        lambda: "(?!" * many + piece + ")" * many,
        lambda: "".join(f"(?=.*{character(random)})" for _ in range(min(many, 12))) + ".*",
        lambda: "[" + "".join(chr(random.randrange(32, 0xD800)) for _ in range(min(many, 3000))) + "]",
    ]
    return random.choice(shapes)()


def _sequence(random: Random, depth: int, ecma: bool) -> str:
    return "".join(_repeated(random, depth, ecma) for _ in range(random.choice([0, 1, 1, 2, 2, 3])))


def _repeated(random: Random, depth: int, ecma: bool) -> str:
    made = _atom(random, depth, ecma)
    draw = random.random()
    if draw < 0.6:
        return made
    if draw < 0.85:
        return made + random.choice(REPEATS)
    low, high = sorted((size(random), size(random)))
    return made + random.choice(
        [f"{{{low}}}", f"{{{low},}}", f"{{{low},{high}}}", f"{{,{high}}}", f"{{{low},{high}}}?"]
    )


def _atom(random: Random, depth: int, ecma: bool) -> str:
    draw = random.random()
    if depth and draw < 0.35:
        return random.choice(GROUPS if draw < 0.12 else ["(", "(?:"]) + alternation(random, depth - 1, ecma) + ")"
    if draw < 0.5:
        inside = "".join(random.choice(CLASSES) for _ in range(random.randint(0, 3)))
        return f"[{'^' if random.random() < 0.3 else ''}{inside}]"
    if draw < 0.56:
        return random.choice(PLACES)
    if draw < 0.6:
        return random.choice(ECMA if ecma else PYTHON)
    return random.choice(ATOMS) if draw < 0.95 else character(random)
