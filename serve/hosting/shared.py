"""State that all models of a server share: room for texts, images and audio, threads, kept responses, traces."""

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
"""A prompt of more characters, or an eighth as many values, is made into tokens apart; others do not wait for that."""
MOST_ASIDE = 64
"""So many requests may wait for work that is beside all texts; then 429."""


def is_large(value: Any, most: int) -> bool:
    """Tell whether a value has more than so many characters and bytes of images and audio, values counted by eight."""
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
    """Made and used on the event loop.

    texts: how many are on their way, over all requests; created: when the server began, in seconds since 1970
    reading: the thread that reads large bodies
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
        # One at a time: a body may take a second of the interpreter's, of which all others then have half.
        self.reading = ThreadPoolExecutor(1, "trellm reading")
        self._pool = ThreadPoolExecutor(ENTERING, "trellm entering")
        self._large = ThreadPoolExecutor(ENTERING, "trellm entering large")
        self._aside = ThreadPoolExecutor(1, "trellm aside")
        self._waiting_aside = 0

    def close(self) -> None:
        """End all that runs."""
        self.media.close()
        for pool in (self.reading, self._pool, self._large, self._aside):
            pool.shutdown(wait=True, cancel_futures=True)
        if self.tracing is not None:
            self.tracing.close()

    def check_room(self, texts: int, place: Place) -> None:
        """Raise ApiError where there is no room for the texts of a request. place: what asks for them"""
        most = self.settings.texts
        if texts > most:
            said = f"{texts:,} sequences exceed the capacity of the server, {most:,}; ask for fewer"
            raise ApiError(said, place)
        if self.texts + texts > most:
            self.metrics.refuse("texts")
            raise busy(f"server at capacity ({self.texts:,} of {most:,} sequences); try again")

    async def aside(self, work: Callable[[], T]) -> T:
        """Do work that may take seconds: one after the other, in a thread that nothing else waits for.

        Raises what it raises, and ApiError where much waits.
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
        """The threads in which texts and tools are made into tokens."""
        return self._large if is_large(values, LARGE) else self._pool


class KeptResponses:
    """Responses with the conversations that they are the ends of; the longest unused go where they are too large.

    most: bytes of all of them as JSON; 0 for none
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, response: dict[str, Any], conversation: list[dict[str, Any]], longest: int) -> bool:
        """Keep a response; False for one that is too large, or whose conversation no request could send.

        conversation: its input, with what went before it, and its output, as items of input
        longest: the most bytes of it
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
        """The response with an id. Raises ApiError."""
        return json.loads(self._of(key, ())[0])

    def conversation(self, key: str) -> bytes:
        """The conversation that a response is the end of, as JSON. Raises ApiError."""
        return self._of(key, ("previous_response_id",))[1]

    def forget(self, key: str) -> None:
        """Keep a response no longer. Raises ApiError."""
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
            f"the server keeps up to {self._most:,} bytes of them, the ones used last, until it ends"
            if self._most
            else "the server keeps none (--kept-responses)"
        )
        instead = "; send the whole conversation as input" if place else ""
        said = f"there is no response {key[:80]!r}: {why}{instead}"
        raise ApiError(said, place, status=400 if place else 404, code="previous_response_not_found")


def _size(made: tuple[bytes, bytes]) -> int:
    return sum(map(len, made)) + 256
