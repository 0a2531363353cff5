"""Batches: documents as tokens, packed into rows of one length by worker processes.

Which documents a chunk of rows has follows from the seed and the chunk's number alone, so that the same text is read
with any number of workers, and after a resumption.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import CONTEXT
from .text.documents import END, Segments, drawn

ROWS = 16
"""Rows of a chunk."""
LONG = 8
"""Of so many chunks one has rows of double length, where the context allows that, each with a longer document."""

Chunk = tuple[NDArray[np.uint16], NDArray[np.uint8]]
"""Token ids [ROWS, length], and for each what it is: 0 padding, GIVEN or ANSWER."""

_ANY_ROOM = 24
"""A row with less room than this is full."""


def has_long(length: int) -> bool:
    """Whether some chunks have rows of double length: what short rows have no room for would not be learned."""
    return 2 * length <= CONTEXT


def shape(number: int, length: int) -> tuple[int, int]:
    """Rows of a chunk, and their length."""
    is_long = has_long(length) and number % LONG == LONG - 1
    return (ROWS // 2, 2 * length) if is_long else (ROWS, length)


def chunk(tokenizer: Any, seed: int, number: int, length: int, held_out: bool = False) -> Chunk:
    """Rows full of documents, of which the seed and the number say which."""
    random = Random(f"{seed} {number} {held_out}")
    several = iter(lambda: encoded(tokenizer, [drawn(random, held_out) for _ in range(ROWS)]), None)
    return packed(several, number, length, tokenizer.token_to_id(END))


def packed(several: Iterable[Iterable[tuple[list[int], list[int]]]], number: int, length: int, end: int) -> Chunk:
    """Rows full of documents, each in one piece, the first at the row's beginning.

    several: documents, some at a time, as many as it takes: their tokens, and what each of them is
    """
    rows, room = shape(number, length)
    ids = np.full((rows, room), end, np.uint16)
    kinds = np.zeros((rows, room), np.uint8)
    filled = [0] * rows
    failures = 0
    for documents in several:
        for tokens, marks in documents:
            size = len(tokens)
            # Rows of double length begin with a document that is too long for others.
            may_begin = room == length or size > length
            row = next((row for row, used in enumerate(filled) if used + size <= room and (used or may_begin)), None)
            if row is None:
                failures += all(filled) and (min(filled) > room - _ANY_ROOM or size < room // 4)
                continue
            start = filled[row]
            ids[row, start : start + size] = tokens
            kinds[row, start : start + size] = marks
            filled[row] += size
        if failures >= ROWS:
            break
    return ids, kinds


def encoded(tokenizer: Any, documents: list[Segments]) -> Iterator[tuple[list[int], list[int]]]:
    """The tokens of each document, and what each of them is. Segments are tokenised apart, as prompts are."""
    texts = [text for document in documents for text, _ in document]
    found = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    for document in documents:
        ids: list[int] = []
        marks: list[int] = []
        for _, mark in document:
            several = next(found).ids
            ids += several
            marks += [mark] * len(several)
        yield ids, marks


class Workers:
    """Processes that make chunks; they are read in the order of the chunks' numbers."""

    def __init__(self, file: Path, seed: int, first: int, length: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._queues: list[Any] = [context.Queue(6) for _ in range(count)]
        self._processes = [
            context.Process(
                target=_work, args=(str(file), seed, first + number, count, length, queue, os.getpid()), daemon=True
            )
            for number, queue in enumerate(self._queues)
        ]
        self._first = first
        self._next = 0
        self._length = length
        for process in self._processes:
            process.start()

    def take(self) -> Chunk:
        """The next chunk. Raises RuntimeError when its worker has ended."""
        worker = self._next % len(self._queues)
        number = self._first + self._next
        self._next += 1
        while True:
            try:
                ids, kinds = self._queues[worker].get(timeout=5)
                break
            except Empty:
                if not self._processes[worker].is_alive():
                    raise RuntimeError(f"worker {worker} ended, with code {self._processes[worker].exitcode}") from None
        sizes = shape(number, self._length)
        return np.frombuffer(ids, np.uint16).reshape(sizes), np.frombuffer(kinds, np.uint8).reshape(sizes)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for queue in self._queues:
            queue.cancel_join_thread()
            queue.close()


def _work(file: str, seed: int, first: int, step: int, length: int, queue: Any, parent: int) -> None:
    """Make every `step`-th chunk until the process that started this is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(file)
    number = first
    while os.getppid() == parent:
        ids, kinds = chunk(tokenizer, seed, number, length)
        queue.put((ids.tobytes(), kinds.tobytes()))
        number += step
