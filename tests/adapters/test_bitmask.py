"""Filling bitmasks: the same bits as `mask`, in any memory, for any guides, whatever rows are given away meanwhile."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from trellm import OptionError, StateError, Vocabulary
from trellm.adapters import BitmaskBuffer, DeviceMasks, Session, allocate_bitmask, fill_bitmask
from trellm.adapters.session import fill_sessions
from trellm.guides import DEAD, RegexGuide
from trellm.guides.lift.mask_table import MaskTable
from trellm.guides.lift.tables import VocabularyTables
from trellm.kernels.logits import mask as masks

from .texts import MAKERS, SMALL, WIDE, states_of

WIDTH = (SMALL.size + 31) // 32


@pytest.mark.parametrize(
    ("name", "vocabulary"), [*((name, SMALL) for name in MAKERS), ("json", WIDE), ("unique", WIDE)]
)
def test_fills_what_masks_are(name: str, vocabulary: Vocabulary) -> None:
    guide = MAKERS[name](vocabulary)
    states = [*states_of(guide), DEAD]
    expected = np.array([guide.mask(state) for state in states])
    for _ in range(2):  # first seen, then known
        bitmask = np.full((len(states) + 1, len(expected[0])), 77, np.uint32)
        fill_bitmask(guide, states, bitmask)
        np.testing.assert_array_equal(bitmask[:-1], expected)
        assert (bitmask[-1] == 77).all()


def test_many_guides_and_rows_out_of_order() -> None:
    guides = [make(SMALL) for make in MAKERS.values()] * 3
    states = [states_of(guide, seed)[-1] for seed, guide in enumerate(guides)]
    order = np.random.default_rng(0).permutation(40)[: len(guides)]
    bitmask = allocate_bitmask(SMALL, 40)
    fill_bitmask(guides, np.array(states), bitmask, order)
    expected = np.zeros((40, WIDTH), np.uint32)
    for row, guide, state in zip(order, guides, states, strict=True):
        expected[row] = guide.mask(state)
    np.testing.assert_array_equal(bitmask.view(np.uint32), expected)


@pytest.mark.parametrize("more", [0, 3])
def test_memory_of_any_kind(more: int) -> None:
    guide = MAKERS["json"](SMALL)
    states = states_of(guide)
    whole = torch.full((len(states), WIDTH + more + 2), -1, dtype=torch.int32)
    for bitmask in (whole[:, : WIDTH + more], whole.numpy()[:, : WIDTH + more].view(np.uint32)):
        whole.fill_(-1)
        fill_bitmask(guide, states, bitmask)
        for row, state in zip(whole.numpy().view(np.uint32), states, strict=True):
            np.testing.assert_array_equal(row[:WIDTH], guide.mask(state))
            assert not row[WIDTH : WIDTH + more].any()
            assert (row[WIDTH + more :] == 2**32 - 1).all()


@pytest.mark.parametrize("vocabulary", [SMALL, WIDE], ids=["short", "listed"])
def test_a_buffer_holds_what_was_filled_last(vocabulary: Vocabulary) -> None:
    """Whatever guides, states and rows come one after the other, sessions that have ended among them."""
    guides = [MAKERS[name](vocabulary) for name in ("json", "regex", "grammar")] + [MAKERS["json"](SMALL)]
    states = [[*states_of(guide), DEAD] for guide in guides]
    words = (vocabulary.size + 31) // 32
    buffer = BitmaskBuffer(torch.full((7, words + 2), -1, dtype=torch.int32)[:, : words + 1])
    expected = np.full((7, words + 1), 2**32 - 1, np.uint32)
    random, plain = np.random.default_rng(0), Plain()
    for step in range(80):
        rows = random.integers(0, 7, 5).tolist()
        chosen = random.integers(0, len(guides), 5).tolist()
        asked: list[Any] = [guides[number] for number in chosen]
        here = [states[number][random.integers(len(states[number]))] for number in chosen]
        if step % 5 == 0:
            asked, here, rows = [plain, *asked[1:]], [plain.start, *here[1:]], [*range(5)]
        rows = list(dict.fromkeys(rows))
        asked, here = asked[: len(rows)], here[: len(rows)]
        if step % 3 == 1:
            sessions = [Session(guide) for guide in asked]
            for session in sessions:
                session.ended = bool(random.integers(2))
            fill_sessions(sessions, buffer, rows)
            masks = [session.mask() for session in sessions]
        elif step % 11 == 2:
            Session(asked[0]).fill(buffer, rows[0])
            masks, rows = [asked[0].mask(asked[0].start)], rows[:1]
        else:
            fill_bitmask(asked, here, buffer, rows)
            masks = [guide.mask(state) for guide, state in zip(asked, here, strict=True)]
        for row, mask in zip(rows, masks, strict=True):
            expected[row] = 0
            expected[row, : len(mask)] = mask
        np.testing.assert_array_equal(buffer.bitmask.numpy().view(np.uint32), expected)


def test_a_buffer_writes_only_what_has_changed() -> None:
    guide = MAKERS["json"](WIDE)
    states = states_of(guide)[:4]
    buffer = BitmaskBuffer(allocate_bitmask(WIDE, 4))
    assert repr(buffer) == "BitmaskBuffer(4 rows of 291 words)"
    fill_bitmask(guide, states, buffer)
    expected = buffer.bitmask.copy()
    buffer.bitmask[:] = 5
    fill_bitmask(guide, states, buffer)
    assert (buffer.bitmask == 5).all()
    buffer.forget([2])
    fill_bitmask(guide, states, buffer)
    np.testing.assert_array_equal(buffer.bitmask[2], expected[2])
    assert (buffer.bitmask[[0, 1, 3]] == 5).all()
    buffer.forget()
    fill_bitmask(guide, states, buffer)
    np.testing.assert_array_equal(buffer.bitmask, expected)
    with pytest.raises(OptionError, match=r"rows=\[4\]: the bitmask has the rows 0 to 3"):
        buffer.forget([4])
    with pytest.raises(OptionError, match="is a BitmaskBuffer already"):
        BitmaskBuffer(buffer)
    with pytest.raises(OptionError, match="must be a NumPy array or a torch tensor"):
        BitmaskBuffer([[0]])


class Plain:
    """A guide of somebody else's, without a table."""

    def __init__(self) -> None:
        self.inner = MAKERS["regex"](SMALL)
        self.vocabulary, self.start = SMALL, self.inner.start
        self.mask, self.advance = self.inner.mask, self.inner.advance
        self.is_accepting, self.distance = self.inner.is_accepting, self.inner.distance


def test_guides_of_others() -> None:
    guide = Plain()
    states = states_of(guide.inner)
    bitmask = allocate_bitmask(SMALL, len(states) + 1)[:, :]
    fill_bitmask(guide, states, bitmask)
    np.testing.assert_array_equal(bitmask.view(np.uint32)[:-1], [guide.mask(state) for state in states])
    with pytest.raises(OptionError, match="has no mask table; use fill_bitmask"):
        DeviceMasks(SMALL, "cpu").rows(guide, states)


def small_table(rows: int, like: Vocabulary = SMALL) -> Vocabulary:
    """A vocabulary whose table has room for so many masks only."""
    vocabulary = Vocabulary(list(like.tokens), like.eos_ids, like.special_ids)
    tables = VocabularyTables.of(vocabulary)
    tables.masks = MaskTable(tables.words)
    tables.masks.max_rows = rows
    return vocabulary


def test_more_masks_than_there_is_room_for() -> None:
    guide = RegexGuide("".join(f"[{chr(97 + i % 20)}-z]{{1,2}}[A-{chr(65 + i % 26)}]?" for i in range(30)), SMALL)
    small = RegexGuide(guide.pattern, small_table(6))
    states = states_of(small, texts=3, tokens=60)
    tables = VocabularyTables.of(small.vocabulary)
    bitmask = allocate_bitmask(SMALL, len(states))
    for _ in range(2):
        bitmask[:] = 0
        fill_bitmask(small, states, bitmask)
        expected = [small.mask(state).copy() for state in states]
        np.testing.assert_array_equal(bitmask.view(np.uint32), expected)
    assert tables.masks.evictions > 20
    mirror = DeviceMasks(small.vocabulary, "cpu")
    for first in range(0, len(states), 3):
        part = states[first : first + 3]
        found = mirror.table[mirror.rows(small, part).long()].numpy().view(np.uint32)
        np.testing.assert_array_equal(found, expected[first : first + 3])
    with pytest.raises(OptionError, match="of which a call may use half"):
        mirror.rows(small, states[:40])


@pytest.mark.parametrize(("like", "has_buffer"), [(SMALL, False), (SMALL, True), (WIDE, True)])
def test_threads_that_give_rows_away(like: Vocabulary, has_buffer: bool) -> None:
    """While one thread fills, another needs so many masks that rows are given away all the time."""
    vocabulary = small_table(8, like)
    steady, restless = RegexGuide("[a-f]{1,3}[0-9]", vocabulary), RegexGuide(r"([^\n]{3}[0-9]{5}[a-f]){9}", vocabulary)
    states, others = states_of(steady)[:4], states_of(restless, tokens=90)
    expected = np.array([steady.mask(state).copy() for state in states])
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            for state in others:
                restless.mask(state)

    thread = threading.Thread(target=disturb)
    thread.start()
    bitmask = allocate_bitmask(vocabulary, len(states))
    target = BitmaskBuffer(bitmask) if has_buffer else bitmask
    try:
        for _ in range(200):
            fill_bitmask(steady, states, target)
            np.testing.assert_array_equal(bitmask.view(np.uint32), expected)
    finally:
        done.set()
        thread.join()


def test_a_mirror_sends_each_mask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    guides = [MAKERS["json"](SMALL), MAKERS["regex"](SMALL)]
    states = [states_of(guide)[3] for guide in guides]
    mirror = DeviceMasks(SMALL, "cpu")
    rows = mirror.rows(guides, states)
    expected = np.array([guide.mask(state) for guide, state in zip(guides, states, strict=True)])
    np.testing.assert_array_equal(mirror.table[rows.long()].numpy().view(np.uint32), expected)
    mirror.table.zero_()  # what is sent once is not sent again
    assert not mirror.table[mirror.rows(guides, states).long()].any()
    logits = torch.zeros((2, SMALL.size))
    DeviceMasks(SMALL, "cpu").apply(logits, guides, states)
    np.testing.assert_array_equal((logits == 0).numpy(), masks.unpack_mask(expected, SMALL.size))


GOOD = allocate_bitmask(SMALL, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("json", [0], np.zeros((1, 8), np.int32)), OptionError, "rows of 8 words, for 256 tokens.*has 272.*needs 9"),
        (("json", [0], np.zeros((1, 9), np.int64)), OptionError, r"int64 \[1, 9\], but must be int32 or uint32"),
        (("json", [0], np.zeros(9, np.int32)), OptionError, "must be int32 or uint32"),
        (("json", [0], [[0] * 9]), OptionError, "a NumPy array or a torch tensor"),
        (
            ("json", [0], torch.zeros((1, 9), dtype=torch.int32, device="meta")),
            OptionError,
            "lies on meta.*DeviceMasks",
        ),
        (("json", [0], np.zeros((9, 2), np.int32).T), OptionError, "must be contiguous"),
        (("json", [0, 0, 0], GOOD), OptionError, "3 states do not fit into a bitmask of 2 rows"),
        (("json", [0], GOOD, [2]), OptionError, "the bitmask has the rows 0 to 1"),
        (("json", [0, 0], GOOD, [1]), OptionError, "the number of a row for each of 2 states"),
        (("json", [10**6], GOOD), StateError, "is no state of this guide"),
        (("json", ["0"], GOOD), StateError, "is no state of this guide"),
        (("json", [[0]], GOOD), StateError, "is no state of this guide"),
        (("json", "0", GOOD), StateError, "states must be states of the guides"),
        (("json", 0, GOOD), StateError, "states must be states of the guides"),
        (("both", [0], GOOD), OptionError, "2 guides for 1 states"),
        (("none", [0], GOOD), OptionError, "is no guide"),
    ],
)
def test_what_does_not_fit(arguments: tuple[Any, ...], error: type[Exception], match: str) -> None:
    guide = MAKERS["json"](SMALL)
    which = {"json": guide, "both": [guide, guide], "none": "[0-9]"}[arguments[0]]
    GOOD[:] = 5
    with pytest.raises(error, match=match):
        fill_bitmask(which, *arguments[1:])
    assert (GOOD == 5).all()


def test_memory_that_cannot_be_written_to() -> None:
    guide = MAKERS["json"](SMALL)
    bitmask = allocate_bitmask(SMALL.size, 1)
    bitmask.flags.writeable = False
    with pytest.raises(OptionError, match="read-only"):
        fill_bitmask(guide, [guide.start], bitmask)
    other = Vocabulary.from_bytes()
    with pytest.raises(OptionError, match="has another vocabulary"):
        DeviceMasks(other, "cpu").rows(guide, [guide.start])
