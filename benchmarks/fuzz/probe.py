"""Calls to a guide, each timed, and random walks that check what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

SLOW = 2.0
"""Seconds of this thread beyond which one call counts as a hang."""
PATIENCE = 3.0
"""Seconds after which a walk ends early."""


class Wrong(AssertionError):  # noqa: N818
    """A guide said something that cannot be right."""


class Probe:
    """Makes calls and remembers the slowest. `made` says whether the guide was made."""

    def __init__(self) -> None:
        self.slowest = ("", 0.0)
        self.spent = 0.0
        self.made = False

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What the function returns, or raises."""
        start = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds = time.thread_time() - start
            self.spent += seconds
            if seconds > self.slowest[1]:
                self.slowest = (getattr(function, "__qualname__", type(function).__name__), seconds)


class Walk:
    """A random walk through a guide. Raises Wrong where answers contradict each other.

    unknown: whether the guide is also asked about states that it never gave out.
    """

    def __init__(self, probe: Probe, guide: Any, random: Random, unknown: bool = True) -> None:
        self._probe = probe
        self._guide = guide
        self._random = random
        self._unknown = unknown
        self._eos: Ids = np.array(sorted(guide.vocabulary.eos_ids), np.int64)
        self._tokens = guide.vocabulary.tokens
        self._size = guide.vocabulary.size

    def run(self, tokens: int) -> bytes | None:
        """Walk, then close; a complete text of the guide, or None if the end was out of reach."""
        call, guide, random = self._probe.call, self._guide, self._random
        state, text = guide.start, b""
        _check(call(guide.distance, state) < 2**30, "the start cannot be completed")
        before = [(state, text)]
        for _ in range(tokens):
            if self._probe.spent > PATIENCE:
                break
            allowed = self._look(state)
            if self._unknown and random.random() < 0.1:
                self._ask_about_unknown()
            if not len(allowed):
                break
            token = int(max(random.choices(allowed, k=2), key=lambda token: len(self._tokens[token] or b"")))
            state, text = call(guide.advance, state, token), text + self._tokens[token]
            before.append((state, text))
            if random.random() < 0.1:
                state, text = random.choice(before)
        return self._close(state, text)

    def _look(self, state: int) -> Ids:
        """Check the answers about a state; the tokens allowed there, without EOS."""
        call, guide, random = self._probe.call, self._guide, self._random
        mask = call(guide.mask, state)
        _check(mask.dtype == np.uint32 and len(mask) == (self._size + 31) // 32, "the mask has another shape")
        ids = _ids(mask)
        _check(not len(ids) or ids[-1] < self._size, f"token {ids[-1:]} is allowed, but there are {self._size}")
        allowed = _without(ids, self._eos)
        accepting = call(guide.is_accepting, state)
        _check(
            bool(np.isin(self._eos, ids).all()) == accepting,
            f"state {state}: accepting is {accepting}, EOS says otherwise",
        )
        distance = call(guide.distance, state)
        _check((distance == 0) == accepting, f"state {state}: distance {distance}, accepting {accepting}")
        _check(accepting or len(allowed) > 0, f"state {state} is a dead end")
        tried = {*_some(random, allowed, 3), *(random.randrange(self._size) for _ in range(3))}
        for token in tried - set(self._eos.tolist()):
            after = call(guide.advance, state, token)
            _check(
                (after != -1) == (token in allowed), f"state {state}: token {token} leads to {after}, the mask differs"
            )
            data = self._tokens[token]
            if data and random.random() < 0.3 and hasattr(guide, "read"):
                read = call(guide.read, state, data)
                _check(
                    (read == -1) == (after == -1), f"state {state}: {data!r} leads to {read}, token {token} to {after}"
                )
        for token in random.sample([-1, -(2**31), -(2**63), self._size, self._size + 31, 2**31, 2**40], 2):
            _check(call(guide.advance, state, token) == -1, f"state {state}: token {token} leads on")
        if random.random() < 0.3:
            self._within(state, distance, allowed)
        if random.random() < 0.1 and hasattr(guide, "read"):
            call(
                guide.read,
                state,
                random.choice([b"", b"\xff", b"\x00" * 40, b'"a', "é漢😀".encode(), random.randbytes(9)]),
            )
        if random.random() < 0.1 and hasattr(guide, "describe"):
            _check(isinstance(call(guide.describe, state), str), "describe gives no text")
        return allowed

    def _within(self, state: int, distance: int, allowed: Ids) -> None:
        from trellm.guides import mask_within

        call, guide, random = self._probe.call, self._guide, self._random
        left = random.choice([0, 1, distance, distance + 1, random.randint(0, 80), 10**9, -1])
        ids = _ids(call(mask_within, guide, state, left))
        known = bool(np.isin(ids, np.concatenate([allowed, self._eos])).all())
        _check(known, f"state {state}, {left} left: tokens are offered that are not allowed")
        _check(
            len(ids) > 0 or left < max(distance, 1),
            f"state {state}, {left} left, distance {distance}: nothing is offered",
        )
        for token in _some(random, ids, 2):
            if token not in self._eos:
                after = call(guide.distance, call(guide.advance, state, token))
                _check(after <= left - 1, f"state {state}, {left} left: after token {token} the distance is {after}")

    def _close(self, state: int, text: bytes) -> bytes | None:
        from trellm.guides import mask_within

        call, guide, random = self._probe.call, self._guide, self._random
        distance = call(guide.distance, state)
        if distance > 60 or self._probe.spent > PATIENCE:
            return None
        for left in range(distance + random.choice([0, 1, 4]), 0, -1):
            ids = _ids(call(mask_within, guide, state, left))
            _check(len(ids) > 0, f"state {state}, {left} left: nothing is offered on the way to the end")
            token = int(random.choice(ids))
            if token in self._eos:
                break
            state, text = call(guide.advance, state, token), text + self._tokens[token]
        _check(bool(call(guide.is_accepting, state)), f"{text[-60:]!r} is not complete at the end of its budget")
        return text

    def _ask_about_unknown(self) -> None:
        """States that were never given out: StateError, or what the same number means by chance."""
        from trellm.errors import TrellmError

        state = self._random.choice(UNKNOWN_STATES)
        name = self._random.choice(["mask", "advance", "is_accepting", "distance", "mask_within", "read"])
        arguments: list[Any] = {"advance": [0], "mask_within": [3], "read": [b"a"]}.get(name, [])
        try:
            self._probe.call(getattr(self._guide, name), state, *arguments)
        except TrellmError as error:
            _check(type(error).__name__ in ("StateError", "OptionError"), f"{name}({state!r}) raises {error!r}")


UNKNOWN_STATES: list[Any] = [
    -1, -2, -(2**31), -(2**63), 10**6, 2**31 - 1, 2**31, 2**32, 2**40, 2**63, 10**30, 0.0, 1.5, float("nan"), "0", None,
    True, np.int64(10**6), np.int32(-7), np.uint64(2**63), np.float32(1), b"0", [0], np.array([0, 1]), 1 << 33 | 1,
]  # fmt: skip


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


def _ids(mask: Any) -> Ids:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def _without(ids: Ids, others: Ids) -> Ids:
    return ids[~np.isin(ids, others)]


def _some(random: Random, ids: Ids, count: int) -> list[int]:
    """Up to so many of the ids."""
    return [int(ids[at]) for at in random.sample(range(len(ids)), min(count, len(ids)))]
