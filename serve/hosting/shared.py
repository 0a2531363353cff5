"""State shared by all models of a server: admission, media, threads, stored responses, traces."""

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
from ...engine.prompts.given import held_by
from ..errors import ApiError, Place, busy
from ..media.reading import MediaReader
from ..settings import Settings
from ..telemetry import Metrics, Tracing

T = TypeVar("T")
ENTERING = 2
LARGE = 1 << 16
"""Size of a prompt in characters, with 8 for each value, from which it is tokenized in separate threads."""
MOST_ASIDE = 64
"""Requests that may wait for slow work aside; beyond it 429."""


def is_large(value: Any, most: int) -> bool:
    """Test whether a nested value exceeds a size: characters and media bytes, plus 8 for each value."""
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
    """The shared state, created and used on the event loop.

    texts: number of unfinished texts of all requests; created: start of the server, in seconds since 1970
    reading: the thread that parses large bodies
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.texts = 0
        self.created = int(time.time())
        endpoint = settings.otlp_traces_endpoint
        self.tracing = None if endpoint is None else Tracing(endpoint)
        self.media = MediaReader(settings)
        self.responses = KeptResponses(settings.response_bytes)
        # One thread: a large body may hold the GIL for a second, and two would leave others little of it.
        self.reading = ThreadPoolExecutor(1, "trellm reading")
        self._pool = ThreadPoolExecutor(ENTERING, "trellm entering")
        self._large = ThreadPoolExecutor(ENTERING, "trellm entering large")
        self._aside = ThreadPoolExecutor(1, "trellm aside")
        self._waiting_aside = 0

    def close(self) -> None:
        """Shut down all threads."""
        self.media.close()
        for pool in (self.reading, self._pool, self._large, self._aside):
            pool.shutdown(wait=True, cancel_futures=True)
        if self.tracing is not None:
            self.tracing.close()

    def check_room(self, texts: int, place: Place) -> None:
        """Raise ApiError if the server has no capacity for a request's texts. place: the field that asks for them"""
        most = self.settings.texts
        if texts > most:
            said = f"{texts:,} sequences exceed the capacity of the server, {most:,}; ask for fewer"
            raise ApiError(said, place)
        if self.texts + texts > most:
            self.metrics.refuse("texts")
            raise busy(f"server at capacity ({self.texts:,} of {most:,} sequences); try again")

    async def aside(self, work: Callable[[], T]) -> T:
        """Run slow work in a thread of its own, one piece after the other.

        Raises its exceptions, and ApiError if too many wait.
        """
        if self._waiting_aside >= MOST_ASIDE:
            self.metrics.refuse("aside")
            raise busy(f"tokenizer at capacity ({self._waiting_aside} requests wait); try again")
        self._waiting_aside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._aside, work)
        finally:
            self._waiting_aside -= 1

    def pool_of(self, *values: Any) -> ThreadPoolExecutor:
        """Return the threads that tokenize these values."""
        return self._large if is_large(values, LARGE) else self._pool


class KeptResponses:
    """Stored responses with their conversations, least recently used evicted first.

    most: bytes of all of them as JSON; 0 for none
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, response: dict[str, Any], conversation: list[dict[str, Any]], longest: int) -> bool:
        """Store a response. Return False if it is too large, or if no request could send its conversation.

        conversation: earlier conversation, input and output, as input items
        longest: greatest size of it in bytes
        """
        made = json.dumps(response).encode(), json.dumps(conversation).encode()
        if _size(made) > self._most or len(made[1]) > longest:
            return False
        with self._lock:
            self._found[response["id"]] = made
            self._bytes += _size(made)
            while self._bytes > self._most:
                _, gone = self._found.popitem(last=False)
                self._bytes -= _size(gone)
        return True

    def response(self, key: str) -> dict[str, Any]:
        """Return a stored response. Raises ApiError."""
        return json.loads(self._of(key, ())[0])

    def conversation(self, key: str) -> bytes:
        """Return the conversation that a response ends, as JSON. Raises ApiError."""
        return self._of(key, ("previous_response_id",))[1]

    def forget(self, key: str) -> None:
        """Remove a response. Raises ApiError."""
        self._of(key, ())
        with self._lock:
            gone = self._found.pop(key, None)
            self._bytes -= 0 if gone is None else _size(gone)

    def _of(self, key: str, place: Place) -> tuple[bytes, bytes]:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
                return found
        why = (
            f"the server keeps the {self._most:,} bytes of most recently used responses, until it stops"
            if self._most
            else "the server keeps no responses (--kept-responses)"
        )
        instead = "; send the whole conversation as input" if place else ""
        said = f"there is no response {key[:80]!r}: {why}{instead}"
        raise ApiError(said, place, status=400 if place else 404, code="previous_response_not_found")


def _size(made: tuple[bytes, bytes]) -> int:
    return sum(map(len, made)) + 256
