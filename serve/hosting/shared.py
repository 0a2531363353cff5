"""State that all models of a server share: admission, media, threads, stored responses, traces."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from ...engine.media import Audio, Image
from ...engine.prompts.arguments import held_by
from ..errors import ApiError, Place, busy
from ..media.reading import MediaReader
from ..settings import Settings
from ..telemetry import Metrics, Tracing

T = TypeVar("T")
TOKENIZER_THREADS = 2
LARGE = 1 << 16
"""Size (see `is_large`) of prompts above which separate threads tokenize them."""
MAX_SLOW = 64
"""Most requests in `SharedState.run_slow`; further ones are refused with status 429."""


def is_large(value: Any, most: int) -> bool:
    """Test whether a nested value exceeds a size: its characters and media bytes, plus 8 for each inner value."""
    left, size = [value], 0
    while left:
        each = left.pop()
        several = held_by(each) or []
        size += 8 + (len(each) if isinstance(each, str) else each.nbytes if isinstance(each, Image | Audio) else 0)
        if size + 8 * len(several) > most:
            return True
        left += several
    return False


class SharedState:
    """State that all models share, created and used on the event loop.

    texts: number of unfinished sequences of all requests; created: start of the server, in seconds since 1970
    reading: thread that parses large bodies
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.texts = 0
        self.created = int(time.time())
        endpoint = settings.otlp_traces_endpoint
        self.tracing = None if endpoint is None else Tracing(endpoint)
        self.media = MediaReader(settings)
        self.responses = ResponseStore(settings.response_bytes)
        # One thread, since parsing a large body may hold the GIL for a second.
        self.reading = ThreadPoolExecutor(1, "trellm reading")
        self._pool = ThreadPoolExecutor(TOKENIZER_THREADS, "trellm entering")
        self._large = ThreadPoolExecutor(TOKENIZER_THREADS, "trellm entering large")
        self._slow = ThreadPoolExecutor(1, "trellm aside")
        self._waiting_slow = 0

    def close(self) -> None:
        """Shut down all threads."""
        self.media.close()
        for pool in (self.reading, self._pool, self._large, self._slow):
            pool.shutdown(wait=True, cancel_futures=True)
        if self.tracing is not None:
            self.tracing.close()

    def check_room(self, texts: int, place: Place) -> None:
        """Raise ApiError if the server has no capacity for more sequences. place: the field that requests them"""
        most = self.settings.texts
        if texts > most:
            message = f"{texts:,} sequences exceed the capacity of the server, {most:,}; ask for fewer"
            raise ApiError(message, place)
        if self.texts + texts > most:
            self.metrics.refuse("texts")
            raise busy(f"server at capacity ({self.texts:,} of {most:,} sequences); try again")

    async def run_slow(self, work: Callable[[], T]) -> T:
        """Run slow work in a separate thread, one call after the other.

        Raises the exceptions of the work, and ApiError if too many calls wait.
        """
        if self._waiting_slow >= MAX_SLOW:
            self.metrics.refuse("aside")
            raise busy(f"tokenizer at capacity ({self._waiting_slow} requests wait); try again")
        self._waiting_slow += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._slow, work)
        finally:
            self._waiting_slow -= 1

    def pool_of(self, *values: Any) -> ThreadPoolExecutor:
        """Return the thread pool to tokenize these values, by their size."""
        return self._large if is_large(values, LARGE) else self._pool


class ResponseStore:
    """An LRU cache of responses with their conversations.

    most: bound of all in bytes of JSON; 0 to store none
    """

    def __init__(self, most: int) -> None:
        self._max_bytes = most
        self._entries: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def store(self, response: dict[str, Any], conversation: list[dict[str, Any]], longest: int) -> bool:
        """Store a response. Return False if it or its conversation is too large.

        conversation: earlier conversation, input and output, as input items
        longest: size limit of a conversation in bytes, that of a body, since a continued request contains it
        """
        entry = json.dumps(response).encode(), json.dumps(conversation).encode()
        if _size(entry) > self._max_bytes or len(entry[1]) > longest:
            return False
        with self._lock:
            self._entries[response["id"]] = entry
            self._bytes += _size(entry)
            while self._bytes > self._max_bytes:
                _, evicted = self._entries.popitem(last=False)
                self._bytes -= _size(evicted)
        return True

    def response(self, key: str) -> dict[str, Any]:
        """Return a stored response. Raises ApiError."""
        return json.loads(self._entry(key, ())[0])

    def conversation(self, key: str) -> bytes:
        """Return the conversation up to and including a response, as JSON. Raises ApiError."""
        return self._entry(key, ("previous_response_id",))[1]

    def forget(self, key: str) -> None:
        """Remove a response. Raises ApiError."""
        self._entry(key, ())
        with self._lock:
            removed = self._entries.pop(key, None)
            self._bytes -= 0 if removed is None else _size(removed)

    def _entry(self, key: str, place: Place) -> tuple[bytes, bytes]:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry
        reason = (
            f"the server keeps the {self._max_bytes:,} bytes of most recently used responses, until it stops"
            if self._max_bytes
            else "the server keeps no responses (--kept-responses)"
        )
        advice = "; send the whole conversation as input" if place else ""
        message = f"there is no response {key[:80]!r}: {reason}{advice}"
        raise ApiError(message, place, status=400 if place else 404, code="previous_response_not_found")


def _size(entry: tuple[bytes, bytes]) -> int:
    return sum(map(len, entry)) + 256
