"""Slots: whatever rows do, each is continued as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.engine.decode.cache import TokenSlots, without
from trellm.engine.models.decoder import DecoderModel


@given(st.integers(0, 12).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, max(rows - 1, 0))))))
@settings(max_examples=60, derandomize=True)
def test_rows_that_leave_are_replaced_by_the_last(case: tuple[int, set[int]]) -> None:
    rows, leaving = case
    leaving = {row for row in leaving if row < rows}
    parents = without(rows, list(leaving))
    assert sorted(parents) == sorted(set(range(rows)) - leaving)
    moved = [row for row, parent in enumerate(parents) if row != parent]
    assert all(row in leaving for row in moved), "a row moves only into a hole"


@given(st.lists(st.integers(0, 3), max_size=5))
@settings(max_examples=60, derandomize=True)
def test_arrange_forks_and_reorders_all_at_once(parents: list[int]) -> None:
    slots = TokenSlots(5, 10)
    slots.join(4)
    for row in range(4):
        slots.append(row, [row] * (row + 1))
    slots.arrange(parents)
    assert slots.tokens[: len(parents)] == [[parent] * (parent + 1) for parent in parents]
    assert slots.lengths == [parent + 1 for parent in parents]
    if len(parents) > 1:
        slots.append(0, [9])
        assert 9 not in slots.tokens[1], "a fork is a copy"


def random_history(model: DecoderModel, seed: int) -> list[tuple[torch.Tensor, list[int]]]:
    """Join, read chunks, fork, reorder and leave at random; (logits, the text they continue) of every row read."""
    pick = random.Random(seed)
    cache = model.make_cache(5, 60)
    texts: list[list[int]] = []
    seen: list[tuple[torch.Tensor, list[int]]] = []

    def read(first: int, longest: int) -> None:
        alike = pick.random() < 0.3
        length = pick.randint(1, longest)
        chunks = [
            [pick.randrange(100) for _ in range(length if alike else pick.randint(1, longest))] for _ in texts[first:]
        ]
        hidden = model.forward(chunks, cache, first)
        logits = model.logits(hidden, list(range(len(chunks))), None)
        for row, chunk in enumerate(chunks):
            texts[first + row] = texts[first + row] + chunk
            seen.append((logits[row], texts[first + row]))

    for _ in range(14):
        match pick.choice(["join", "read", "read", "arrange"]):
            case "join" if len(texts) < 5:
                count = pick.randint(1, 5 - len(texts))
                cache.join(count)
                texts += [[]] * count
                read(len(texts) - count, 7)
            case "arrange" if texts:
                parents = [pick.randrange(len(texts)) for _ in range(pick.randint(1, 5))]
                cache.arrange(parents)
                texts = [texts[parent] for parent in parents]
            case _ if texts and max(map(len, texts)) < 50:
                read(0, 3)
            case _:
                continue
        assert cache.lengths == [len(text) for text in texts]
    return seen


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2", "gemma3"])
def test_any_history_of_rows_gives_the_logits_of_the_text_alone(
    name: str, hugging_face: Callable[[str], Any], decoder: Callable[..., DecoderModel]
) -> None:
    with torch.inference_mode():
        for seed in range(4):
            seen = random_history(decoder(name), seed)
            assert len(seen) > 5
            for logits, text in seen[-12:]:
                expected = hugging_face(name)(torch.tensor([text]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_logits_of_few_tokens_are_those_of_all(name: str, decoder: Callable[..., DecoderModel]) -> None:
    model = decoder(name)
    with torch.inference_mode():
        cache = model.make_cache(2, 8)
        cache.join(2)
        hidden = model.forward([[5, 6, 7], [8]], cache)
        ids = torch.tensor([3, 50, 99])
        everything = model.logits(hidden, [1, 0], None)
        torch.testing.assert_close(model.logits(hidden, [1, 0], ids), everything[:, ids])
        torch.testing.assert_close(model.logits(hidden, [0], None), everything[1:])


def test_what_rows_share_is_not_copied() -> None:
    class Counted(TokenSlots):
        copied = 0

        def copy(self, sources: Sequence[int], targets: Sequence[int], begin: int, end: int) -> None:
            self.copied += len(targets) * (end - begin)
            super().copy(sources, targets, begin, end)

    slots = Counted(4, 100)
    slots.join(3)
    for row in range(3):
        slots.append(row, [*range(40 + 10 * row), *([row] * (50 - 10 * row))])
    slots.arrange([0, 1, 2, 1], [90, 90, 90, 0])
    assert slots.copied == 90
    before = [list(tokens) for tokens in slots.tokens]
    slots.arrange([0, 0, 2, 1], [90, 40, 90, 90])  # row 1 is a source too: everything is copied at once
    assert slots.copied == 90 + 180 and slots.tokens == [before[0], before[0], before[2], before[1]]
    slots.arrange([0, 1, 0, 3], [90, 90, 40, 90])
    assert slots.copied == 90 + 180 + 90 - 32 and slots.tokens[2] == before[0]
