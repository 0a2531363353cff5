"""The format `regex`: what people write is accepted, and what is accepted JavaScript compiles."""

from __future__ import annotations

import json
import shutil
import subprocess
from random import Random
from typing import Any

import pytest
from trellm.guides import JSONGuide

from ..support import items_of, parse
from .test_guide_suite import BYTES, reads

WRITTEN = [
    "^[a-zA-Z0-9_]{3,16}$",
    "[0-9]{12,16}",
    "^[a-z][a-z0-9-]{3,50}$",
    "^[-a-z]+[^-]$",
    "^[a-zA-Z0-9-_]+$",
    r"^[\w.-]+@[\w-]+$",
    "^([0-9]{1,3}\\.){3}[0-9]{1,3}$",
    r"[\x00-\x1F\u4e00-\u9fa5]",
    "[A-z]",
    r"^$|(^#?[ -~]+$)",
    "^(?!pattern$).*$",
    "[&a|]?x|[a&]",
    r"a\b.\Bb",
    "[]|[^]",
    "(?<=a+)b(?<!c|d)e",
    r"\cA[\cz\b]\x41",
    "(?<name>x)|(y(?:z))*",
    "((a)|b(?<$n_1>(c)+)*)d",
    r"^[\w\.-_]+$",
    "[|-|.]",
    "[+--b]",
    "[---a-]",
    r"[!-~][ -\]][\*-z]",
    "[à-ÿ][а-я][一-龥][a-я]",
    r"[\x00-\x1F][\x0b-\x0c][\x20-~][\u00c0-\uFFFF][\u3040-\u30ff][\x80-\u0100]",
    "[[(&&]",
    "[a^][a^-z][-^-a][^^-^][^--a-c-][^-a][!-~^-~-]",
    "[--é-][---é]",
    "a{2}?b{10,}c{3,12}",
    r"\0*",
]
REFUSED = [
    "a{3,2}",
    "a{16,12}",
    "[z-a]",
    "[]]",
    "[a--b]",
    r"[\w-a]",
    "[я-а]",
    "[b-a-]",
    "[^-f-\x08]",
    r"[^-x-5-}]",
    r"[^^-\]]",
    "[a-😀]",
    "[!-😀--1]",
    "[--😀--^]",
    r"[\x41-\x40]",
    r"[\uD83D\uDE00-\uDE4F]",
    "(?<n>a)(?<n>b)",
    "(?<1>a)",
    "(?<=a)*",
    "(?P<n>a)",
    "(?#a)",
    "(?i)a",
    r"\a",
    r"\_",
    r"\01",
    r"\c1",
    "a]",
    "a}",
    "a{,2}",
    "^*",
    r"\b+",
    "(?=a)*",
    "a{2}{3}",
    r"\1",
    r"(?<n>a)\k<n>",
]
LETTERS = r"""[]()^$-|&~\{},:?*+=!<>.abcxuzAZ019dwbBn/ ' """


@pytest.mark.parametrize("more", [{}, {"minLength": 1}], ids=str)
def test_what_people_write_is_accepted(more: dict[str, Any]) -> None:
    guide = JSONGuide({"type": "string", "format": "regex", **more}, BYTES)
    wanted = WRITTEN if not more else ["^[a-z0-9_]{3,16}$", "(a(b|c))+", "[a-z-]"]
    assert [text for text in wanted if not reads(guide, json.dumps(text, ensure_ascii=False))] == []
    assert [text for text in REFUSED if reads(guide, json.dumps(text, ensure_ascii=False))] == []


def test_ranges_are_accepted_whose_ends_are_in_order() -> None:
    chart = JSONGuide({"type": "string", "format": "regex"}, BYTES).automaton

    def ways(char: str) -> list[str]:
        return [*([char] if char not in "-\\]" else []), *(["\\" + char] if char in "^$\\.*+?()[]{}|/-" else [])]

    printable = [chr(code) for code in range(0x20, 0x7F)]
    for low in (way for char in printable for way in ways(char)):
        begun = chart.read(chart.start, json.dumps(f"[a{low}-")[:-1].encode())
        for high in (way for char in printable for way in ways(char)):
            after = chart.read(begun, json.dumps(high + "]")[1:].encode())
            assert (after >= 0) == (low[-1] <= high[-1]), (low, high)


@pytest.mark.parametrize("text", ["", "[", "[a-", "[\\\\", "[\\\\u", "a{", "(?"])
def test_few_ways_are_open_at_a_time(text: str) -> None:
    chart = JSONGuide({"type": "string", "format": "regex"}, BYTES).automaton
    state = chart.read(chart.start, b'"' + text.encode())
    assert items_of(chart, state) < 24


def written_by(guide: JSONGuide, random: Random) -> str:
    """A text out of random characters of patterns, each of which leaves it to be completed."""
    state, text = guide.start, b""
    for left in range(random.randrange(6, 30), -1, -1):
        ways = [
            byte
            for byte in sorted(set(LETTERS.encode() + b'"'))
            if (after := guide.automaton.step(state, byte)) >= 0 and guide.distance(after) <= left
        ]
        if guide.is_accepting(state) or not ways:
            break
        text += bytes([byte := random.choice(ways)])
        state = guide.automaton.step(state, byte)
    assert guide.is_accepting(state)
    return json.loads(text)


def compiles(patterns: list[str]) -> list[tuple[bool, bool]]:
    """Whether JavaScript compiles patterns with the flag `u`, and without; skips the test where there is no node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    said = """
        const tried = (p, flags) => { try { new RegExp(p, flags); return true } catch (e) { return false } };
        let text = "";
        process.stdin.on("data", d => text += d);
        const compiled = () => JSON.parse(text).map(p => [tried(p, "u"), tried(p)]);
        process.stdin.on("end", () => console.log(JSON.stringify(compiled())));
    """
    done = subprocess.run([node, "-e", said], input=json.dumps(patterns), capture_output=True, text=True, check=True)
    return [(unicode, plain) for unicode, plain in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """What the guide writes at random."""
    guide, random = JSONGuide({"type": "string", "format": "regex"}, BYTES), Random(5)
    return [written_by(guide, random) for _ in range(400)]


def test_what_is_accepted_can_be_read(texts: list[str]) -> None:
    for text in (*texts, *WRITTEN):
        parse(text, dialect="ecma")


def test_what_is_accepted_compiles(texts: list[str]) -> None:
    accepted = [*texts, *WRITTEN]
    for text, (unicode, plain) in zip(accepted, compiles(accepted), strict=True):
        assert plain, text
        assert unicode or r"\-" in text, text


def test_changed_patterns_are_accepted_only_if_they_compile() -> None:
    guide, random = JSONGuide({"type": "string", "format": "regex"}, BYTES), Random(7)
    changed: list[str] = []
    for _ in range(3000):
        letters = list(random.choice(WRITTEN))
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(letters) + 1)
            letters[at : at + random.randrange(2)] = random.choice(LETTERS)
        changed.append("".join(letters))
    accepted = [reads(guide, json.dumps(text, ensure_ascii=False)) for text in changed]
    missed = 0
    for text, taken, (unicode, plain) in zip(changed, accepted, compiles(changed), strict=True):
        assert not taken or (plain and (unicode or r"\-" in text)), text
        missed += unicode and plain and not taken
    assert sum(accepted) > 1000
    assert missed < 100
