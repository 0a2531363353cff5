"""Sets of values that grow by one, against Python's sets; what words may come to, against all their spellings."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from trellm.guides.distinct.values import (
    ARRAY,
    OBJECT,
    Container,
    Ledger,
    Values,
    WordBegin,
    WrittenValues,
    having,
    key_of,
    word_of,
)

RESTS = (b"", b"a", b"ba", b"abab")


def values_of(random: Random, values: Values) -> list[Any]:
    """Values out of few."""
    texts: list[Any] = ["".join(random.choices("ab", k=random.randint(0, 4))).encode() for _ in range(12)]
    words = [word_of(random.choice((b"0", b"1", b"10", b"-1", b"1.5", b"15e1", b"true", b"1e9"))) for _ in range(6)]
    arrays = [values.array(random.choices([*texts, *words], k=random.randint(0, 2))) for _ in range(8)]
    objects = [values.object([(random.choice(texts), random.choice([*texts, *words]))]) for _ in range(8)]
    return list(dict.fromkeys([*texts, *words, *arrays, *objects]))


@pytest.mark.parametrize("seed", range(30))
def test_sets_that_branch_are_as_those_of_python(seed: int) -> None:
    random = Random(seed)
    values = Values()
    known = values_of(random, values)
    sets: list[tuple[WrittenValues, list[Any]]] = [(WrittenValues(Ledger(), 0), [])]
    for _ in range(60):
        # Mostly on from the last one; else a branch from anywhere
        written, model = sets[-1] if random.random() < 0.7 else random.choice(sets)
        value = random.choice(known)
        assert (value in written) == (value in model)
        if value not in model:
            sets.append((written.adding(value), [*model, value]))
    for written, model in sets:
        texts = [value for value in model if isinstance(value, bytes)]
        assert written.count == len(model)
        for begin in (b"", b"a", b"b", b"ab", b"ba", b"abb"):
            beginning = {text for text in texts if text.startswith(begin)}
            ends = {text[len(begin) :] for text in beginning if text[len(begin) :] in RESTS}
            assert set(written.beginning(begin)) == beginning
            assert written.continues(begin) == bool(beginning)
            assert set(written.ends(begin, RESTS)) == ends
        for word in (b"1", b"-", b"1e", b"t", b"15"):
            begin_of = WordBegin(word)
            words = [value for value in model if not isinstance(value, (bytes, Container))]
            suited = any(begin_of.suits(key_of(value)) for value in words)
            assert written.continues_word(begin_of) == suited
        for kind in (ARRAY, OBJECT):
            expected = [value for value in model if isinstance(value, Container) and value.kind == kind]
            rivals = written.containers(kind)
            assert list(rivals) == expected
            for at in (0, 1) if kind == ARRAY else texts:
                for part in known:
                    same = [value for value in expected if value.has(at) and value.parts[at] == part]
                    assert list(having(rivals, at, part)) == same


def spellings(random: Random) -> bytes:
    """A number as JSON has it."""
    digits = "".join(random.choices("0012", k=random.randint(1, 4)))
    text = random.choice(("", "-")) + (digits.lstrip("0") or "0")
    if random.random() < 0.5:
        text += "." + "".join(random.choices("0012", k=random.randint(1, 3)))
    if random.random() < 0.4:
        text += random.choice("eE") + random.choice(("", "+", "-")) + "".join(random.choices("013", k=2))
    return text.encode()


def test_a_word_begins_as_its_beginning_says() -> None:
    random = Random(0)
    words = [*(spellings(random) for _ in range(1500)), b"true", b"false", b"null"]
    keys = {key_of(word_of(word)) for word in words}
    suited = 0
    for word in words:
        key = key_of(word_of(word))
        for end in range(1, len(word) + 1):
            begin = WordBegin(word[:end])
            assert begin.suits(key), (word, end)
            suited += sum(map(begin.suits, keys)) < len(keys) / 2
    assert suited > len(words)  # most beginnings tell much
