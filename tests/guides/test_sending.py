"""Guides sent to other processes, copied, hashed and compared: by what they were made of."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import Limits, Quote, Vocabulary
from trellm.errors import OptionError
from trellm.guides import (
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    FSMGuide,
    GoalGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    laws,
)
from trellm.guides.grammar import Alternation, Chars, Literal, Repeat, Sequence, parse_lark

from .support import EMPTY, NOTHING, LiftedGuide, RegularGuide, Table, flattened, parse, unflattened
from .vocabularies import SMALL

UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
QUOTING = {"type": "string", "x-quote": "source"}
GRAMMAR = 'start: "a" start | quote(source)\n'


def machine(vocabulary: Vocabulary) -> FSMGuide:
    from interegular import parse_pattern

    return FSMGuide(parse_pattern("[ab]{2,4}").to_fsm(), vocabulary)


def what_is_left(guide: SubstringGuide) -> SubstringGuide:
    """Without two of the words, the first of them in vain: what a guide is made without does not add up."""
    other = guide.without(guide.places("here"))
    assert other is not None
    found = other.without(guide.places("cab"))
    assert found is not None and found != guide != other != found
    return found


MAKERS: dict[str, Callable[[Vocabulary], Guide]] = {
    "regex": lambda v: RegexGuide("[a-c]{2,9}é?", v, flags=2, limits=Limits(work=10**8)),
    "ecma": lambda v: RegexGuide("[a-c]{2,9}", v, dialect="ecma"),
    "choice": lambda v: ChoiceGuide((text for text in ("ab", "abc", "123")), v),
    "machine": machine,
    "json": lambda v: JSONGuide({"type": "object", "properties": {"a": {"type": "integer"}}}, v, order="schema"),
    "json text": lambda v: JSONGuide('{"enum": [1, 2.5, "a", null]}', v, whitespace="compact"),
    "unique": lambda v: JSONGuide(UNIQUE, v),
    "quoting": lambda v: JSONGuide(QUOTING, v, contexts={"source": ["the cab", "a tab"]}),
    "grammar": lambda v: CFGGuide('root ::= "a" root | "b"', v, syntax="gbnf"),
    "quoting grammar": lambda v: CFGGuide(GRAMMAR, v, contexts={"source": Quote("the cab is in", max_chars=9)}),
    "read grammar": lambda v: CFGGuide(parse_lark('start: "a" start | /[0-9]+/'), v),
    "syntax": lambda v: RegularGuide(parse("([ab]|12){2,5}é"), v),
    "table": lambda v: RegularGuide(Table(np.full((1, 256), 0, np.int32), np.array([True])), v),
    "the rest of Python's stack": lambda v: what_is_left(
        SubstringGuide("the cab is here, the tab is there", v, none_text="no")
    ),
    "quotation": lambda v: SubstringGuide(["the cab", "is here"], v, boundary="character", max_chars=8, none_text="no"),
    "aligned": lambda v: AlignedGuide(RegexGuide("[0-9]{2}", v), b"ab", counts_tail=False),
    "goals": lambda v: GoalGuide(RegexGuide("[a-c ]{0,9}", v), ["ab", "c"]),
    "free": lambda v: FreeGuide(v),
}


def told(guide: Guide, seed: int = 0) -> list[object]:
    """What a guide says along random texts."""
    random = Random(seed)
    return [
        (token, guide.mask(state).tobytes(), guide.distance(state))
        for _ in range(3)
        for state, token in laws.walk(guide, random, 9)
    ]


@pytest.mark.parametrize("name", MAKERS)
def test_what_arrives_is_what_was_sent(name: str) -> None:
    guide = MAKERS[name](SMALL)
    said = told(guide)
    other = pickle.loads(pickle.dumps(guide))
    assert type(other) is type(guide) and other.vocabulary is guide.vocabulary
    assert other == guide and hash(other) == hash(guide) and told(other) == said
    assert copy.deepcopy({"guide": [guide]})["guide"][0] is guide is copy.copy(guide)
    assert len({guide, other, MAKERS[name](SMALL)}) == 1


def test_syntax_as_deep_as_guides_may_be() -> None:
    node: Any = Literal(b"a")
    for number in range(70):
        node = Repeat(Sequence((Literal(b"b"), Alternation((node, Literal(b"c"), NOTHING)))), 1, 1 + number % 2)
    guide = RegularGuide(node, SMALL)
    other = pickle.loads(pickle.dumps(guide))
    assert told(other) == told(guide)
    assert unflattened(flattened(node)) == node
    shared = Chars(((97, 98),))
    assert len(flattened(Sequence((shared, shared, EMPTY)))) == 3


def test_guides_of_equal_content_only_are_equal() -> None:
    made = [make(SMALL) for make in MAKERS.values()]
    assert len(set(made)) == len(made)
    others = Vocabulary([b"zz", *SMALL.tokens[1:]], SMALL.eos_ids, SMALL.special_ids)
    same = Vocabulary(list(SMALL.tokens), SMALL.eos_ids, SMALL.special_ids)
    assert RegexGuide("a+", SMALL) == RegexGuide("a+", same) != RegexGuide("a+", others)
    assert RegexGuide("a+", SMALL) != RegexGuide("a+", SMALL, flags=2) != RegexGuide("a+", SMALL, dialect="ecma")
    assert JSONGuide('{"type":  "null"}', SMALL) == JSONGuide({"type": "null"}, SMALL) != JSONGuide({}, SMALL)
    assert JSONGuide({"type": "null"}, SMALL) != JSONGuide({"type": "null"}, SMALL, whitespace="any")
    assert RegexGuide("a+", SMALL) != "a+" and AlignedGuide(FreeGuide(SMALL), b"a") != FreeGuide(SMALL)


def test_what_was_given_may_change() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    choices = ["ab", "b"]
    guides = [JSONGuide(schema, SMALL), ChoiceGuide(choices, SMALL)]
    said, hashes = [told(guide) for guide in guides], [hash(guide) for guide in guides]
    schema["properties"]["a"]["type"] = "boolean"
    choices.append("c")
    others = [pickle.loads(pickle.dumps(guide)) for guide in guides]
    assert others == guides and [told(other) for other in others] == said and [*map(hash, others)] == hashes
    assert JSONGuide(schema, SMALL) != guides[0]


def test_another_process(tmp_path: Path) -> None:
    """All guides at once; they share the vocabulary there, too."""
    guides = [make(SMALL) for make in MAKERS.values()]
    (tmp_path / "guides").write_bytes(pickle.dumps([guides, SMALL]))
    code = (
        "import hashlib, pickle, sys\n"
        "guides, vocabulary = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert all(guide.vocabulary is vocabulary for guide in guides)\n"
        "for guide in guides:\n"
        "    print(hashlib.sha256(guide.mask(guide.start).tobytes()).hexdigest(), guide.distance(guide.start))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "guides")], capture_output=True, text=True, check=True
    )
    import hashlib

    expected = [
        f"{hashlib.sha256(guide.mask(guide.start).tobytes()).hexdigest()} {guide.distance(guide.start)}"
        for guide in guides
    ]
    assert run.stdout.splitlines() == expected


def test_vocabularies_are_sent_by_content() -> None:
    vocabulary = Vocabulary([*SMALL.tokens, b"new"], SMALL.eos_ids, SMALL.special_ids)
    _ = vocabulary.trie
    data = pickle.dumps(vocabulary)
    assert len(data) < 8000  # the tokens alone, without what was computed
    assert pickle.loads(data) is vocabulary and copy.deepcopy(vocabulary) is vocabulary
    del vocabulary
    other = pickle.loads(data)
    assert other.tokens[-1] == b"new" and other.eos_ids == SMALL.eos_ids and other.special_ids == SMALL.special_ids
    np.testing.assert_array_equal(other.trie.byte, Vocabulary(other.tokens, other.eos_ids).trie.byte)


def test_what_cannot_be_sent_or_compared() -> None:
    syntax = RegularGuide(parse("[ab]"), SMALL)
    guide = LiftedGuide(syntax.automaton, SMALL)
    with pytest.raises(OptionError, match="cannot be pickled or sent to another process; send what it was made of"):
        pickle.dumps(guide)
    assert guide == guide and isinstance(hash(guide), int)
    assert LiftedGuide(syntax.automaton, SMALL) != guide
    deep: Any = reduce(lambda inner, _: {"items": inner}, range(1500), {})
    one, other = JSONGuide(deep, SMALL), JSONGuide(deep, SMALL)
    assert isinstance(hash(one), int) and one == one and (one == other) in (True, False)
