"""Responses stored in memory, so that /v1/responses can continue one by its id."""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock
from typing import Any

from .errors import ApiError, Place


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
            f"the server keeps up to {self._most:,} bytes of them, the ones used last, until it ends"
            if self._most
            else "the server keeps none (--kept-responses)"
        )
        instead = "; send the whole conversation as input" if place else ""
        said = f"there is no response {key[:80]!r}: {why}{instead}"
        raise ApiError(said, place, status=400 if place else 404, code="previous_response_not_found")


def _size(made: tuple[bytes, bytes]) -> int:
    return sum(map(len, made)) + 256
