"""Strings of a schema as graphs: exactly the sets they stand for, spelt as JSON, and never a dead end."""

from __future__ import annotations

import gzip
import json
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from trellm import Vocabulary
from trellm.errors import LimitError
from trellm.guides import JSONGuide

from ....thresholds import thresholds
from ....watching import watched
from ...support import EPSILON, ChartAutomaton, Graph, LiftedGuide, Lowering
from ..support import PATTERNS, CountedStrings, Escapes, PatternLanguage, String, StringLowering

LANGUAGE = PatternLanguage()
ALPHABET = 'ab"\\é\n'
STRINGS = ["".join(chars) for length in range(5) for chars in product('ab"é', repeat=length)]
BYTES = [bytes([byte]) for byte in range(256)]
PIECES = [
    "ab",
    "aa",
    "ba",
    "bb",
    "aaa",
    'a"',
    '",',
    '"}',
    'é"',
    "éa",
    "\\n",
    '\\"',
    "aaaaaaaa",
    "ababab",
    "éé",
    'b"}',
    "ab\\",
]
VOCABULARY = Vocabulary([*BYTES, *(piece.encode() for piece in PIECES), None], eos_ids=[256 + len(PIECES)])


def build(case: String, escapes: Escapes = "canonical") -> ChartAutomaton | None:
    """The automaton of the JSON texts of a set, followed by a closing brace; None if the set is empty."""
    graph = Graph()
    with graph.new_rule() as start:
        brace = graph.node(((0x7D, 0x7D, graph.final()),))
        entry = StringLowering(Lowering(graph), escapes).entry(case, brace)
        if entry is None:
            return None
        graph.define(start, links=((EPSILON, entry, 0),))
    return ChartAutomaton(graph, start)


def reads(machine: ChartAutomaton | None, data: bytes) -> bool:
    """Whether the automaton reads `data` and a brace as a complete text."""
    if machine is None:
        return False
    state = machine.read(machine.start, data + b"}")
    return state >= 0 and machine.is_accepting(state)


def spelt(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def spelt_anyhow(text: str, rng: random.Random) -> bytes:
    """A text in one of the many ways in which JSON allows to write it."""
    short = {'"': '"', "\\": "\\", "/": "/", "\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}
    written = ""
    for char in text:
        units = char.encode("utf-16-be")
        ways = ["".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))]
        ways.append(ways[0].upper().replace("\\U", "\\u"))
        if char in short:
            ways.append("\\" + short[char])
        if char not in '"\\' and char >= " ":
            ways.append(char)
        written += rng.choice(ways)
    return f'"{written}"'.encode()


def regexes() -> st.SearchStrategy[str]:
    """Patterns over a small alphabet, mostly bounded."""
    atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "é", '"', r"\\", r"\s", r"\w", "[^\\x00-\\x1f]", "(?:)"])
    repeated = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"])

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        groups = st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})")
        return st.lists(st.tuples(atoms | groups, repeated).map("".join), min_size=1, max_size=3).map("".join)

    body = st.recursive(st.tuples(atoms, repeated).map("".join), grow, max_leaves=5)
    return st.tuples(st.sampled_from(["^", "", "^(?!aa)"]), body, st.sampled_from(["$", "", r"\b"])).map(
        lambda parts: f"{parts[0]}(?:{parts[1]}){parts[2]}"
    )


def cases() -> st.SearchStrategy[String]:
    """Sets of strings with every kind of condition."""
    sets = st.frozensets(regexes(), max_size=2)
    bounds = st.none() | st.integers(0, 9)
    excluded = st.frozensets(st.text('ab"é', max_size=3), max_size=4) | st.just(frozenset[str]())
    return st.builds(
        lambda least, most, patterns, none_of, out: String(least, most, patterns, none_of, excluded=out),
        st.integers(0, 5),
        bounds,
        sets,
        st.frozensets(regexes(), max_size=1),
        excluded,
    )


def walk(machine: ChartAutomaton, rng: random.Random, walks: int, steps: int = 40) -> None:
    """Read random bytes: there is always one that comes nearer to the end, and masks are what the bytes allow."""
    guide = LiftedGuide(machine, VOCABULARY)
    closing = guide._closing  # pyright: ignore[reportPrivateUsage]
    tokens = VOCABULARY.trie.ids
    for _ in range(walks):
        state = machine.start
        favourite = rng.choice(b'ab"\\\xc3 ')
        for _ in range(steps):
            row = machine.transitions(state)
            after = np.unique(row[row >= 0])
            if not len(after):
                break
            if not machine.is_accepting(state):
                cost = int(closing.bytes_needed(np.array([state], np.int32))[0])
                assert closing.bytes_needed(after).min() < cost
            if rng.random() < 0.1:
                allowed = set(tokens[closing.after_tokens(state) >= 0].tolist())
                mask = guide.mask(state)
                assert {token for token in tokens.tolist() if mask[token >> 5] >> (token & 31) & 1} == allowed
            likely = int(row[favourite])
            state = likely if likely >= 0 and rng.random() < 0.7 else int(rng.choice(after.tolist()))
        assert machine.is_accepting(state) or closing.distance(state) < 2**30


@pytest.mark.parametrize("escapes", ["canonical", "any"])
@settings(max_examples=35, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 1000))
def test_the_texts_are_the_set(escapes: Escapes, case: String, seed: int) -> None:
    try:
        machine = build(case, escapes)
    except LimitError:
        reject()
    rng = random.Random(seed)
    assert (machine is None) == LANGUAGE.is_empty(case)
    for text in rng.sample(STRINGS, 60) + LANGUAGE.examples(case, 10):
        expected = LANGUAGE.contains(case, text)
        assert reads(machine, spelt(text)) == expected, text
        assert reads(machine, spelt_anyhow(text, rng)) == expected or escapes == "canonical", text
    if machine is not None:
        walk(machine, rng, 4)


REAL = [
    String(formats=frozenset(["uri"]), max_length=255),
    String(formats=frozenset(["hostname"]), max_length=253),
    String(formats=frozenset(["email"]), max_length=100),
    String(patterns=frozenset([".+T[^Z+\\-]+"]), formats=frozenset(["date-time"])),
    String(patterns=frozenset(["^([0-9]{4})(-([0-9]{2}))?(-([0-9]{2}))?$"]), formats=frozenset(["date"])),
    String(1, 5000, frozenset(["^$|(^(?:\\S+\\s+){0,99}\\S+$)"])),
    String(12, 12, frozenset(["[0-9a-fA-F]+"])),
    String(0, 4096, frozenset(["([A-Z]+)?"])),
    String(3, 80, frozenset([r"^(?:@[0-9a-z-_.]+\/)?[a-z][0-9a-z-_.]*$"])),
    String(0, 128, frozenset([r"^[^\.\s\\/:\*\?\"<>\|\x01-\x1f]{1,32}(\.[^\.\s\\/:\*\?\"<>\|\x01-\x1f]{1,32}){1,3}$"])),
    String(10, 13, frozenset(["^[0-9]{2,5}-?[0-9]{1,4}-?[0-9]{4}$"])),
    String(10, None, frozenset(["^(http|https)://.*"])),
    String(3, 300, frozenset(["a{2}", "b"]), frozenset(["ab"])),
    String(not_patterns=frozenset(["^x-", "^[a-z]+$"]), excluded=frozenset(["Title", "X", ""])),
    String(2, 2, not_patterns=frozenset(["[^ab]"]), excluded=frozenset(["aa", "ab", "ba"])),
    String(patterns=frozenset([r"^\\b.+\\b$"])),
    String(formats=frozenset(["regex"])),
]


@pytest.mark.parametrize("case", REAL, ids=range(len(REAL)))
def test_conditions_as_schemas_combine_them(case: String) -> None:
    rng = random.Random(7)
    machine = build(case)
    assert machine is not None
    examples = LANGUAGE.examples(case, 12)
    for text in [*examples, *(mutated(text, rng) for text in examples * 4)]:
        assert reads(machine, spelt(text)) == LANGUAGE.contains(case, text), text
    walk(machine, rng, 6)


def mutated(text: str, rng: random.Random) -> str:
    """The text with one character more, less, or other."""
    at = rng.randrange(len(text) + 1)
    new = rng.choice(["", *'aZ0-_.:/ \n\t\x01"\\é中😀', *text])
    return text[:at] + new + text[at + rng.randrange(2) :]


def test_a_bound_far_away_counts_every_character() -> None:
    case = String(2000, 3000, frozenset(["^(?:ab)+$|^c*$"]))
    machine = build(case)
    for text in ("ab" * 1000, "ab" * 1500, "c" * 2001, "c" * 3000):
        assert reads(machine, spelt(text))
    for text in ("ab" * 999, "ab" * 1501, "c" * 1999, "c" * 3001, "ab" * 1000 + "c"):
        assert not reads(machine, spelt(text))


def test_states_of_a_bounded_format_are_defined_once_for_all_guides(monkeypatch: pytest.MonkeyPatch) -> None:
    defined = watched(monkeypatch, Graph, "define")
    text = b'"%b.%b' % (b"a" * 60, b"-b" * 30)
    for most in (253, 252, 251):
        defined.clear()
        guide = JSONGuide({"type": "string", "format": "hostname", "maxLength": most}, Vocabulary.from_bytes())
        guide.mask(guide.read(guide.start, text))
    assert len(defined) < 50


@pytest.mark.parametrize("escapes", ["canonical", "any"])
@pytest.mark.parametrize("bounds", [(0, 12), (3, 40), (9, 12)])
@pytest.mark.parametrize("pattern", ["^(ab|a-)*$", '^[a"é]{1,6}(\\.é{2,3})*$', "é.c$"])
def test_copied_states_are_those_defined_as_they_are_reached(
    pattern: str, bounds: tuple[int, int], escapes: Escapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "string", "pattern": pattern, "minLength": bounds[0], "maxLength": bounds[1]}
    copied = JSONGuide(schema, Vocabulary.from_bytes(), escapes=escapes)
    assert copied.read(copied.start, b'"a') >= 0
    with monkeypatch.context() as patch:
        patch.setattr(CountedStrings, "_stretched", lambda _: None)
        reached = JSONGuide(schema, Vocabulary.from_bytes(), escapes=escapes)
        rng = random.Random(0)
        for _ in range(20):
            one, other = copied.start, reached.start
            while True:
                assert copied.distance(one) == reached.distance(other)
                after = copied.after_bytes(one) >= 0
                assert (after == (reached.after_bytes(other) >= 0)).all()
                if not after.any():
                    break
                byte = bytes([rng.choice(after.nonzero()[0].tolist())])
                one, other = copied.read(one, byte), reached.read(other, byte)


def test_every_control_character_is_written_as_json_dumps_does() -> None:
    """With plain syntax, with tables (of look-arounds) and with automata."""
    for pattern in ("^[^a]$", "^(?!aa)[^a]$|^aab$", "^(?=.)[^a]\\B$"):
        for case in (String(patterns=frozenset([pattern])), String(1, 1, frozenset([pattern]), frozenset(["b"]))):
            machine = build(case)
            for code in (*range(0x300), 0x2028, 0xFFFF, 0x10000, 0x10FFFF):
                text = chr(code)
                written = spelt(text)
                assert reads(machine, written) == LANGUAGE.contains(case, text), (pattern, code)
                assert not reads(machine, f'"\\u{code:04X}"'.encode()) or written == f'"\\u{code:04X}"'.encode()


@pytest.mark.parametrize("escapes", ["canonical", "any"])
@pytest.mark.parametrize("count", [1, 3, 30, 400])
def test_many_values_and_all_but_many(escapes: Escapes, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, values_excluded_at_once=1000)  # most are added as they are reached
    rng = random.Random(count)
    texts = {"".join(rng.choices('ab"\\é\n😀/', k=rng.randrange(9))) for _ in range(count)}
    others = {mutated(text, rng) for text in texts} - texts
    inside, outside = build(String(values=frozenset(texts)), escapes), build(String(excluded=frozenset(texts)), escapes)
    for text in texts | others:
        for written in (spelt(text), *([spelt_anyhow(text, rng)] if escapes == "any" else [])):
            assert reads(inside, written) == (text in texts)
            assert reads(outside, written) == (text not in texts)
    for machine in (inside, outside):
        assert machine is not None
        walk(machine, rng, 6)


def test_lone_surrogates_are_refused() -> None:
    for case in (String(), String(patterns=frozenset(["^.$"])), String(max_length=5, excluded=frozenset(["a"]))):
        machine = build(case, "any")
        assert reads(machine, rb'"\ud83d\ude00"') and reads(machine, rb'"\uD83D\uDE00"')
        for text in (rb'"\ud83d"', rb'"\ude00"', rb'"\ud83dx"', rb'"\ude00\ud83d"'):
            assert not reads(machine, text)
    assert build(String(values=frozenset(["\ud800"]))) is None
    assert reads(build(String(excluded=frozenset(["\ud800"]))), b'"a"')


def test_no_string_is_shorter_than_the_shortest() -> None:
    for case in (
        *REAL,
        String(min_length=4),
        String(values=frozenset(["abc", '"'])),
        String(excluded=frozenset(["", "a"])),
    ):
        lowering = StringLowering(Lowering(Graph()), "canonical")
        shortest = min(len(spelt(text)) for text in LANGUAGE.examples(case, 6))
        assert lowering.shortest(case) >= shortest
        if case.min_length == 0 or case.patterns == frozenset():
            assert lowering.shortest(case) == shortest


def test_what_is_too_large_names_its_pattern() -> None:
    case = String(patterns=frozenset(["[ab]{25000}c"]), max_length=30_000)
    with pytest.raises(LimitError, match=r"\[ab\]\{25000\}c"):
        build(case)


def test_strings_of_real_schemas_can_be_built(shared_data: Path) -> None:
    """Every combination of pattern, format and lengths in the sample of MaskBench."""
    cases: set[String] = set()
    with gzip.open(shared_data / "maskbench-dev.jsonl.gz", "rt") as lines:
        for line in lines:
            collect(json.loads(line)["schema"], cases)
    assert len(cases) > 500
    rng = random.Random(3)
    for case in sorted(cases, key=str):
        machine = build(case)
        for text in LANGUAGE.examples(case, 2):
            assert reads(machine, spelt(text))
            other = mutated(text, rng)
            assert reads(machine, spelt(other)) == LANGUAGE.contains(case, other), (case, other)


def collect(schema: object, cases: set[String]) -> None:
    """Add what a schema's keywords say about strings, object by object."""
    if isinstance(schema, list):
        for item in schema:
            collect(item, cases)
    if not isinstance(schema, dict):
        return
    pattern, name = schema.get("pattern"), schema.get("format")
    least, most = schema.get("minLength"), schema.get("maxLength")
    case = String(
        least if isinstance(least, int) else 0,
        most if isinstance(most, int) else None,
        frozenset([pattern]) if isinstance(pattern, str) else frozenset(),
        formats=frozenset([name]) if isinstance(name, str) and name in PATTERNS else frozenset(),
    )
    if case != String():
        cases.add(case)
    for value in schema.values():
        collect(value, cases)


REGEXES = ["", "^a$", "(a|b)*", "((((x))))+", "(?=a)b", "[a-f]-x", "a{2,}", r"\d+\.\w", r"(?:é|ß)\\", r"[^0-9A-Z\\]"]


@pytest.mark.parametrize("escapes", ["canonical", "any"])
def test_regular_expressions_as_strings(escapes: Escapes) -> None:
    """Alone, the format's groups nest as deep as one likes."""
    guide = JSONGuide({"type": "string", "format": "regex"}, Vocabulary.from_bytes(), escapes=escapes)

    def accepts(text: str) -> bool:
        state = guide.start
        for byte in json.dumps(text, ensure_ascii=False).encode():
            state = guide.advance(state, byte)
            if state < 0:
                return False
        return guide.is_accepting(state)

    assert all(map(accepts, REGEXES))
    assert not any(map(accepts, ["(a", "a)", "*", "a**", "[b-a]", "[]]", "a{", "(?<=a)*", "\\", "\\1"]))
    assert guide.distance(guide.start) == 2
