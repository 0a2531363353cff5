"""Which replica a request goes to: that which has read its beginning before, as long as it has not much more to do."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .packages import ray

PREFIX = 1024
"""Characters of what a model reads that say where a request goes."""
SPARE = 8
"""So many requests a replica may have at any rate: a batch of eight takes hardly longer than one."""
SLACK = 1.25


def prefix_of(body: bytes) -> str:
    """How the text of a request begins, as far as it says where to go; "" where there is nothing to go by.

    It is that of tools and instructions, then of the prompt, or of a chat up to the first answer, so that later turns
    go where the first one went.
    """
    try:
        request: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(request, dict):
        return ""
    fields = cast("dict[str, Any]", request)
    asked: Any = next((fields[name] for name in ("messages", "input", "prompt") if fields.get(name)), "")
    if isinstance(asked, list):
        asked = _until_answer(cast("list[Any]", asked))
    first = [fields.get(name) for name in ("tools", "instructions") if fields.get(name)]
    return json.dumps([*first, asked], ensure_ascii=True)[:PREFIX]


def _until_answer(messages: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        if isinstance(message, dict) and cast("dict[str, Any]", message).get("role") == "assistant":
            break
        found.append(message)
    return found


def ranked(key: str, loads: Mapping[str, int]) -> list[str]:
    """Replicas by name, best first. loads: what each has to do

    Each key has an order of its own over all names, in which the others stay as they are when one comes or goes
    (rendezvous hashing, Thaler and Ravishankar 1998). Those that have more than 1.25 times their share to do come after
    the others (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam 2018).
    """
    bound = max(SPARE, math.ceil(SLACK * (sum(loads.values()) + 1) / max(len(loads), 1)))

    def weight(name: str) -> tuple[bool, bytes]:
        return loads[name] >= bound, hashlib.blake2b(f"{key}\0{name}".encode("utf-8", "replace")).digest()

    return sorted(loads, key=weight)


def _prefix_router() -> Any:
    """The router as a class of Ray's, which is there only where Ray is."""
    base: Any = ray("ray.serve.request_router").RequestRouter

    class PrefixRouter(base):
        """Asks `ranked`; the key of a request is the second argument that it is sent with."""

        async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
            """Each replica alone, best first; the next one is asked where one has no room."""
            if pending_request is None:
                return [candidate_replicas]
            pending_request.routing_context.should_backoff = True
            replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
            queued: Any = self.replica_queue_len_cache
            loads = {name: queued.get(replica.replica_id) or 0 for name, replica in replicas.items()}
            key = pending_request.args[1] or pending_request.metadata.internal_request_id
            return [[replicas[name]] for name in ranked(key, loads)]

    PrefixRouter.__module__, PrefixRouter.__qualname__ = __name__, "PrefixRouter"
    return PrefixRouter


def __getattr__(name: str) -> Any:
    """`PrefixRouter`, made when Ray first looks for it by its name."""
    if name != "PrefixRouter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _prefix_router()
    return made
