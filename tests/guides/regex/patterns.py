"""Random patterns, most of them with a text that they are likely to match."""

from random import Random

from hypothesis import strategies as st

# Pieces of patterns over a, b and c
ATOMS = ["a", "b", "c", "ab", "[ab]", ".", "", "(?=a)", "(?!b)", r"\b", "^"]

# Pattern pieces of one character, with a character that matches.
_SINGLE = [
    *[("a", "a"), ("b", "b"), (r"\.", "."), (".", "x"), ("é", "é"), ("😀", "😀"), (" ", " ")],
    *[(r"\d", "7"), (r"\w", "_"), (r"\s", "\t"), (r"\D", "a"), (r"\W", "-"), (r"\S", "b")],
    *[("[ab]", "b"), ("[^a]", "b"), ("[a-cx]", "c"), (r"[^\w]", " "), (r"[\d-]", "-"), ("[]a]", "]")],
    *[(r"\x41", "A"), (r"\u00e9", "é"), (r"\U0001F600", "😀"), (r"\101", "A"), (r"\0", "\0"), (r"\n", "\n")],
    *[(r"[\x00-\x1f]", "\n"), ("[À-ÿ]", "é"), ("[^\\s\\d]", "a"), (r"\N{LATIN SMALL LETTER A}", "a")],
    *[
        ("k", "K"),
        ("ſ", "s"),
        ("[i-k]", "i"),
        ("[^K]", "a"),
        ("đ", "Đ"),
        ("[đ1]", "Đ"),
        ("σ", "ς"),
        ("{", "{"),
        ("]", "]"),
    ],
]
_ANCHORS = [(anchor, "") for anchor in (r"^", r"$", r"\A", r"\Z", r"\b", r"\B")]
_REPEATS = [("*", 2), ("+", 1), ("?", 0), ("{2}", 2), ("{1,2}", 2), ("{,2}", 1), ("{2,}", 3)]
_REPEATS += [("*?", 0), ("+?", 2), ("{1,3}?", 1)]
_FLAGS = ["i", "s", "m", "a", "u", "x", "-i", "i-s", "ms", "ia"]


def drawn(random: Random, depth: int, atoms: list[str], marks: list[str], names: list[str] | None = None) -> str:
    """A pattern whose repeats have one of some marks, and which has atomic groups where "+" is one of these.

    names: gets the names of groups, which patterns have then, and no empty alternatives
    """
    kind = random.randrange(12 if names is None else 14) if depth else 0
    if kind < 3:
        return random.choice(atoms)
    inner = [drawn(random, depth - 1, atoms, marks, names) for _ in range(2 if kind < 7 else 1)]
    if kind < 5:
        return "".join(inner)
    if kind < 7:
        return f"(?:{'|'.join(inner)}{random.choice(['', '|']) if names is None else ''})"
    if kind < 10:
        count = random.choice(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}"])
        return f"(?:{inner[0]}){count}{random.choice(marks)}"
    if kind < 11 or names is None:
        return f"(?{'>' if '+' in marks else '='}{inner[0]})"
    names.append(f"g{len(names)}")
    return f"(?P<{names[-1]}>{inner[0]})"


def plain_patterns() -> st.SearchStrategy[tuple[str, str]]:
    """Patterns of Python's dialect without anchors and looking around."""
    return st.recursive(st.sampled_from(_SINGLE), lambda inner: _combined(inner) | _scoped(inner), max_leaves=8)


def looking_patterns(letters: str, behind: bool = True) -> st.SearchStrategy[tuple[str, str]]:
    """Patterns over a few letters, full of anchors and looking around."""
    single = [(letter, letter) for letter in letters]
    single += [(f"[{letters[0]}{letters[1]}]", letters[0]), (f"[^{letters[0]}]", letters[1]), (".", letters[-1])]
    leaves = st.sampled_from(single) | st.sampled_from(_ANCHORS if behind else _ANCHORS[:2] + _ANCHORS[4:])
    return st.recursive(leaves, lambda inner: _combined(inner) | _looks(inner), max_leaves=9)


def near(example: str, alphabet: str) -> st.SearchStrategy[str]:
    """Texts that differ a little from the example, or not at all."""

    def edit(cut: tuple[int, int], inserted: str) -> str:
        begin = cut[0] % (len(example) + 1)
        return example[:begin] + inserted + example[begin + cut[1] :]

    cuts = st.tuples(st.integers(0, 30), st.integers(0, 2))
    return st.just(example) | st.builds(edit, cuts, st.text(alphabet, max_size=3)) | st.text(alphabet, max_size=6)


def _combined(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    def repeat(item: tuple[str, str], times: tuple[str, int]) -> tuple[str, str]:
        return f"(?:{item[0]}){times[0]}", item[1] * times[1]

    def choose(left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
        return f"({left[0]}|{right[0]})", right[1]

    def follow(left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
        return f"(?:{left[0]}){right[0]}", left[1] + right[1]

    return (
        st.builds(repeat, inner, st.sampled_from(_REPEATS))
        | st.builds(choose, inner, inner)
        | st.builds(follow, inner, inner)
    )


def _scoped(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    def scope(flags: str, item: tuple[str, str]) -> tuple[str, str]:
        return f"(?{flags}:{item[0]})(?#note)", item[1]

    return st.builds(scope, st.sampled_from(_FLAGS), inner)


def _looks(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    def look(kind: str, body: tuple[str, str], beside: tuple[str, str]) -> tuple[str, str]:
        condition = f"(?{kind}{body[0]})"
        return (f"{beside[0]}{condition}" if "<" in kind else f"{condition}(?:{beside[0]})"), beside[1]

    return st.builds(look, st.sampled_from(["=", "!", "<=", "<!"]), inner, inner)
