"""The format `regex`: what people write is accepted, and what is accepted both Python and JavaScript compile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from random import Random
from typing import Any

import pytest
from trellm.guides import JSONGuide

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
]
REFUSED = [
    "a{3,2}",
    "a{16,12}",
    "[z-a]",
    "[]",
    "[^]",
    "^*",
    r"\b+",
    "(?=a)*",
    "a{2}{3}",
    "(?<=a)b",
    r"\1",
    "[a&&b]",
    "[--]",
]
LETTERS = r"""[]()^$-|&~\{},:?*+=!.abxuzAZ019dwbBn/ ' """


@pytest.mark.parametrize("more", [{}, {"minLength": 1}], ids=str)
def test_what_people_write_is_accepted(more: dict[str, Any]) -> None:
    guide = JSONGuide({"type": "string", "format": "regex", **more}, BYTES)
    wanted = WRITTEN if not more else ["^[a-z0-9_]{3,16}$", "(a(b|c))+", "[a-z-]"]
    assert [text for text in wanted if not reads(guide, json.dumps(text))] == []
    assert [text for text in REFUSED if reads(guide, json.dumps(text))] == []


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


def test_what_is_accepted_compiles() -> None:
    guide, random = JSONGuide({"type": "string", "format": "regex"}, BYTES), Random(5)
    texts = [written_by(guide, random) for _ in range(600)]
    for text in (*texts, *WRITTEN):
        re.compile(text)
    node = shutil.which("node")
    if node is None:
        return
    said = "process.stdin.on('data', d => JSON.parse(d).forEach(p => new RegExp(p)))"
    done = subprocess.run([node, "-e", said], input=json.dumps([*texts, *WRITTEN]), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-300:]
