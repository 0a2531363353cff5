"""Batches: documents as tokens, packed into rows of one length by worker processes.

Which documents a chunk of rows has follows from the seed and the chunk's number alone, so that the same text is read
with any number of workers, and after a resumption.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .text.documents import END, Segments, drawn

ROWS = 16
"""Rows of a chunk."""

Chunk = tuple[NDArray[np.uint16], NDArray[np.uint8]]
"""Token ids [ROWS, length], and for each what it is: 0 padding, GIVEN or ANSWER."""

_ANY_ROOM = 24
"""A row with less room than this is full."""


def chunk(tokenizer: Any, seed: int, number: int, length: int, held_out: bool = False) -> Chunk:
    """Rows full of documents, each in one piece, the first at the row's beginning."""
    random = Random(f"{seed} {number} {held_out}")
    end: int = tokenizer.token_to_id(END)
    ids = np.full((ROWS, length), end, np.uint16)
    kinds = np.zeros((ROWS, length), np.uint8)
    filled = [0] * ROWS
    failures = 0
    while failures < ROWS:
        for tokens, marks in encoded(tokenizer, [drawn(random, held_out) for _ in range(ROWS)]):
            size = len(tokens)
            row = next((row for row in range(ROWS) if filled[row] + size <= length), None)
            if row is None:
                failures += min(filled) > length - _ANY_ROOM or size < length // 4
                continue
            start = filled[row]
            ids[row, start : start + size] = tokens
            kinds[row, start : start + size] = marks
            filled[row] += size
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
        self._next = 0
        self._length = length
        for process in self._processes:
            process.start()

    def take(self) -> Chunk:
        """The next chunk. Raises RuntimeError when its worker has ended."""
        worker = self._next % len(self._queues)
        self._next += 1
        while True:
            try:
                ids, kinds = self._queues[worker].get(timeout=5)
                break
            except Empty:
                if not self._processes[worker].is_alive():
                    raise RuntimeError(f"worker {worker} ended, with code {self._processes[worker].exitcode}") from None
        shape = (ROWS, self._length)
        return np.frombuffer(ids, np.uint16).reshape(shape), np.frombuffer(kinds, np.uint8).reshape(shape)

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
