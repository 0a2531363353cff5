"""How tokens divide at loops, compared with what their texts say; masks where little of it is put together."""

from __future__ import annotations

import codecs
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import JSONGuide, RegexGuide, tokens_of
from trellm.guides.lift.tables import branches_of
from trellm.kernels.trie.branches import Branches
from trellm.kernels.trie.loop_slice import BYTE, DEPTH, IS_EXIT, NEXT, NODE

from ...thresholds import thresholds
from ...watching import watched
from ..naive_masks import naive_mask
from ..support import Trie, VocabularyTables
from .test_shortcuts import PATTERNS, SCHEMAS, SETS, check, vocabulary

LOOPS = {
    "all but a quote": (2**64 - 1 - (1 << 34) - (2**32 - 1), 2**64 - 1, 2**53 - 4),
    "letters": (0, 0x07FFFFFE07FFFFFE, 0),
    "letters, and characters of two bytes": (0, 0x07FFFFFE07FFFFFE, 2**32 - 4),
}


def leaves(text: bytes, loop: tuple[int, int, int]) -> tuple[int, int]:
    """How many bytes of a text stay in a loop, -1 if it leaves within a character; how many characters are begun."""
    at = chars = 0
    while at < len(text):
        lead = text[at]
        stays = loop[2] >> (lead - 0xC0) & 1 if lead >= 0xC0 else lead < 0x80 and loop[lead >> 6] >> (lead & 63) & 1
        if not stays:
            return at, chars
        part = text[at : at + (1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)]
        try:
            codecs.getincrementaldecoder("utf-8")().decode(part)
        except UnicodeDecodeError:
            return -1, chars
        at, chars = at + len(part), chars + 1
    return len(text), chars


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("most", [0, 60, 10**6])
def test_slices_are_what_tokens_say(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, tokens_that_leave_a_loop=most)
    fresh, loop = vocabulary(), LOOPS[name]
    known = VocabularyTables.of(fresh)
    found = known._slicing.divided(loop)
    texts = [text or b"" for text in fresh.tokens]
    divided = [leaves(text, loop) for text in texts]
    staying = {token: chars for token, (at, chars) in enumerate(divided) if texts[token] and at == len(texts[token])}
    assert dict(zip(found.ids.tolist(), found.chars.tolist(), strict=True)) == staying
    assert found.chars.tolist() == sorted(found.chars.tolist()) and tokens_of(found.row) == sorted(staying)

    exits = {text[: at + 1]: chars for text, (at, chars) in zip(texts, divided, strict=True) if 0 <= at < len(text)}
    ends = {int(node): text for text, node in zip(node_texts(known.trie), known.branch_numbers, strict=True)}
    listed = [ends[node] for node in found.exit_node.tolist()]
    assert sorted(listed) == sorted(exits)
    assert [(text[-1], exits[text]) for text in listed] == sorted((text[-1], chars) for text, chars in exits.items())
    assert found.exit_chars.tolist() == [exits[text] for text in listed]
    reach = {text[:length]: len(text) for text in sorted(texts, key=len) for length in range(1, len(text) + 1)}
    assert found.exit_reach.tolist() == [reach[text] for text in listed]
    assert found.exit_start.tolist() == np.searchsorted([text[-1] for text in listed], np.arange(257)).tolist()

    way = {text[:length] for text in exits for length in range(1, len(text) + 1)} if len(exits) <= most else set()
    assert [ends[node] for node in found.way[:, NODE].tolist()] == sorted(way)
    below = Counter(text[:length] for text in way for length in range(1, len(text) + 1))
    for place, row in enumerate(found.way):
        text = ends[row[NODE]]
        assert (row[IS_EXIT], row[BYTE], row[DEPTH]) == (text in exits, text[-1], len(text))
        assert row[NEXT] == place + below[text]

    leaving: dict[int, list[int]] = {}
    for token, (at, _) in enumerate(divided):
        if 0 <= at < len(texts[token]):
            leaving.setdefault(texts[token][at], []).append(token)
    merged = [byte for byte in range(256) if found.tail_root[byte] >= 0]
    assert sum(len(leaving[byte]) for byte in merged) <= most
    assert most < 10**6 or merged == sorted(leaving)
    check_tails(found.tails, [(token, texts[token][divided[token][0] :]) for byte in merged for token in leaving[byte]])
    assert [found.tails.byte[found.tail_root[byte]] for byte in merged] == merged


def node_texts(trie: Any) -> list[bytes]:
    """The text of each node, in preorder."""
    found = [b""]
    stack = [b""]
    for byte, depth in zip(trie.byte.tolist()[1:], trie.depth.tolist()[1:], strict=True):
        del stack[depth:]
        stack.append(stack[-1] + bytes((byte,)))
        found.append(stack[-1])
    return found


def check_tails(tails: Branches, texts: list[tuple[int, bytes]]) -> None:
    """Compare with the trie that is built of the texts."""
    expected = branches_of(Trie.build([text for _, text in texts]))
    np.testing.assert_array_equal(tails.first, expected.first)
    np.testing.assert_array_equal(tails.byte, expected.byte)
    np.testing.assert_array_equal(tails.tokens, expected.tokens)
    np.testing.assert_array_equal(tails.below[1:], expected.below[1:])
    assert tails.deepest == expected.deepest
    for own, end, _ in tails.tokens.tolist():
        wanted = sorted(texts[at][0] for at in expected.ids[own:end].tolist())
        assert sorted(tails.ids[own:end].tolist()) == wanted


@pytest.mark.parametrize("most", [0, 60])
def test_masks_where_little_is_put_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, tokens_that_leave_a_loop=most)
    fresh = vocabulary()
    for pattern in (*PATTERNS, *(f'"{characters}{{2,40}}"[,:]?a*' for characters in SETS)):
        check(RegexGuide(pattern, fresh), Random(pattern))
    for number, schema in enumerate(SCHEMAS):
        check(JSONGuide(schema, fresh), Random(number))


NARROW = ['"[a-z]{3}[a-z1]{2,5}1?"', "([a-z]{2}1){2,4}", "[a-z]{4,}( [a-z]+){0,3}[.]?", "[a-z 1]{0,6}"]


@pytest.mark.parametrize("pattern", NARROW)
def test_narrow_loops_are_those_read_token_by_token(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fewer characters than most states that loop have; usually the first walks are plain."""
    thresholds(monkeypatch, walks_before_a_narrow_loop=0)
    random = Random(pattern)
    texts = {"".join(random.choices('abcde xyz1."', k=random.randint(1, 7))).encode() for _ in range(600)}
    texts |= {bytes((byte,)) for byte in range(256)}
    fresh = Vocabulary([*sorted(texts), None], [len(texts)])
    guide = RegexGuide(pattern, fresh)
    for _ in range(3):
        state = guide.start
        for _ in range(6):
            allowed = tokens_of(guide.mask(state))
            assert set(allowed) == naive_mask(guide, state)
            if allowed in ([], [len(texts)]):
                break
            state = guide.advance(state, random.choice([token for token in allowed if token < len(texts)]))


def test_a_mask_that_is_begun_again_is_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mask of a string defines the rules behind it; the vocabulary is divided for later ones."""
    fresh = vocabulary()
    members = {"a": {"type": "string", "pattern": "[a-z]+", "minLength": 3, "maxLength": 9}, "b": {"type": "array"}}
    guide = JSONGuide({"properties": members, "required": ["a", "b"], "additionalProperties": False}, fresh)
    divided = watched(monkeypatch, VocabularyTables.of(fresh)._slicing, "divided")
    guide.mask(guide.read(guide.start, b'{"a":"'))
    assert not divided
