"""What is kept in a process: what was given last, and never more than there is room for."""

import ast
import re
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from trellm.errors import LimitError
from trellm.guides.cached import cached, cached_growing, held_bytes
from trellm.guides.grammar import Chars, Repeat

from .support import Table

PACKAGE = Path(__file__).parents[2]


def test_a_result_is_worked_out_once() -> None:
    calls: list[str] = []

    @cached(4, 10_000)
    def doubled(text: str) -> str:
        calls.append(text)
        return 2 * text

    assert [doubled("ab"), doubled("ab"), doubled("c")] == ["abab", "abab", "cc"]
    assert calls == ["ab", "c"]


def test_what_is_too_much_together_is_forgotten() -> None:
    made = count()

    @cached(100, 5000)
    def text(length: int) -> tuple[int, bytes]:
        return next(made), bytes(length)

    for length in (100, 101, 102):
        text(length)
    assert text(100)[0] == 0, "all three have room"
    text(4500)
    assert text(4500)[0] == 3, "what does not fit beside the others stays alone"
    assert text(100)[0] == 4


def test_what_fails_is_not_kept() -> None:
    calls: list[int] = []

    @cached(4, 1000)
    def fails(number: int) -> int:
        calls.append(number)
        raise LimitError("no")

    for _ in range(2):
        with pytest.raises(LimitError):
            fails(1)
    assert calls == [1, 1]


def test_what_grows_is_weighed_again() -> None:
    @cached_growing(100, 1000, len)
    def texts(number: int) -> list[int]:
        return [number]

    first = texts(0)
    texts(1)
    assert texts(0) is first
    first += range(2000)
    texts(2)
    assert texts(0) is not first


@pytest.mark.parametrize(
    "value",
    [
        Chars(tuple((low, low + 1) for low in range(0, 4000, 3))),
        Repeat(Chars(((0, 9),)), 2, 5),
        Table(np.zeros((50, 256), np.int32), np.ones(50, np.bool_)),
        frozenset(str(number) * 20 for number in range(500)),
        {number: [number] * 3 for number in range(1000)},
    ],
    ids=["characters", "syntax", "table", "names", "mapping"],
)
def test_weights_are_about_what_memory_a_value_takes(value: object) -> None:
    def deep(each: object, seen: set[int]) -> int:
        if id(each) in seen:
            return 0
        seen.add(id(each))
        own = sys.getsizeof(each)
        if isinstance(each, np.ndarray):
            return own if own > each.nbytes else own + each.nbytes
        if isinstance(each, dict):
            return own + sum(deep(part, seen) for pair in each.items() for part in pair)
        if isinstance(each, (tuple, list, frozenset)):
            return own + sum(deep(part, seen) for part in each)
        return own + sum(deep(getattr(each, name), seen) for name in getattr(type(each), "__slots__", ()))

    weight, actual = held_bytes(value, 1 << 40), deep(value, set())
    assert actual / 2 < weight < 4 * actual
    assert held_bytes(value, 100) <= weight


# Functions that few different arguments can ever be given
FEW = {
    "_metaschemas": "none",
    "_all_but": "vocabularies with their EOS",
    "_class": "patterns of ours",
    "_digest": "none",
    "_dtype_name": "the types of logits",
    "_free_string": "none",
    "_free_text": "none",
    "_has_triton": "none",
    "_line": "how far lines may be indented",
    "_source_of": "classes of modules",
    "_team": "none",
    "_trial_stream": "the GPUs of a machine",
    "_up_to": "how much white space there may be, up to 1,000",
    "ascii_class": "the letters of classes",
    "byte_level_alphabet": "none",
    "fields_of": "classes of ours",
    "last_character": "sets of characters of ours",
    "machine_of": "the GPUs of a machine",
    "orbits": "the kinds of case folding",
    "property_ranges": "the names that Unicode has",
    "unbounded": "twelve",
    "unbounded_floats": "two",
    "unicode_class": "the letters of classes",
}


def test_whatever_comes_from_strangers_is_kept_by_weight() -> None:
    """Nothing else remembers results for the length of a process."""
    found: set[str] = set()
    for folder in ("guides", "kernels", "tokenizers_adapter", "engine"):
        for file in (PACKAGE / folder).rglob("*.py"):
            if file.name == "cached.py":
                continue
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "cache" in text else ():
                for decorator in getattr(node, "decorator_list", []):
                    if re.match("(functools\\.)?(lru_)?cache\\b", ast.unparse(decorator)):
                        found.add(node.name)
    assert found == FEW.keys()
