"""States and tokens that a guide never gave out, asked of every method of every guide.

    python benchmarks/fuzz/states.py [--only NAME] [--every N]

Each question is asked in a forked process, so that a crash is seen. Expected: an unknown token leads to DEAD, which
allows nothing and leads nowhere; a state that is no whole number, or was never given out, raises StateError; a mask
cannot be written to; and a guide answers as before afterwards. A state of another guide is a number like any other:
what this guide gave out under that number, or StateError.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from trellm.guides.protocol import DEAD

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pool import answer_of
from scenarios import Answers, differences, makers, recorded

NO_STATES: list[Any] = [
    -2, -7, -(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1, 10**6, 10**9, 2**31 - 1, 2**31, 2**32, 2**32 - 1, 2**33
    + 1, 2**40,
    2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**30, 0.5, float("nan"), float("inf"), None, "0", b"0", (), [0], {}, object,
    np.float32(0.5), np.int64(10**7), np.int32(-9), np.uint64(2**64 - 1), np.array([0, 1]), np.array(0.5), 1j,
]  # fmt: skip
NO_TOKENS: list[Any] = [-1, -2, -(2**31), -(2**63), 10**6, 2**31, 2**32, 2**63, 2**64, 10**30]
STRANGE_TOKENS: list[Any] = [None, "a", b"a", [0], np.array([1, 2]), object]
LEFTS: list[Any] = [-1, -(2**63), 2**31, 2**63, 10**30, None, "3", np.int64(3), np.array([1, 2])]
METHODS: dict[str, list[Any]] = {
    "mask": [], "row": [], "advance": [97], "is_accepting": [], "distance": [], "fits": [3], "mask_within": [3],
    "read": [b"a"],
    "describe": [], "mask_below": [1], "distance_below": [1], "after_tokens": [], "progress": [], "unmet": [],
    "progress_after": [97], "bytes_needed": [],
}  # fmt: skip
Question = tuple[str, Callable[[Any], str]]


def questions(guide: Any, name: str) -> list[Question]:
    """What is asked: a name, and a function that says what is wrong with the answer."""
    from trellm.errors import OptionError, StateError

    found: list[Question] = []

    def refused(method: str, arguments: list[Any], errors: tuple[type[Exception], ...]) -> Callable[[Any], str]:
        def ask(guide: Any) -> str:
            try:
                answer = getattr(guide, method)(*arguments)
            except errors:
                return ""
            return f"answers {str(answer)[:60]}"

        return ask

    for method, more in METHODS.items():
        if not hasattr(guide, method) or method == "bytes_needed":
            continue
        for state in NO_STATES:
            if name.startswith("free ") and method != "progress":
                continue
            found.append((f"{method}({state!r})", refused(method, [state, *more], (StateError, OptionError))))
    for token in NO_TOKENS:
        found.append(
            (f"advance(start, {token!r})", lambda guide, token=token: _is(guide.advance(guide.start, token), DEAD))
        )
    for token in STRANGE_TOKENS:
        found.append(
            (f"advance(start, {token!r})", refused("advance", [guide.start, token], (StateError, OptionError)))
        )
    for left in LEFTS:
        whole = isinstance(left, (int, np.integer))
        found.append(
            (
                f"mask_within(start, {left!r})",
                (lambda guide, left=left: _within(guide, int(left)))
                if whole
                else refused("mask_within", [guide.start, left], (OptionError,)),
            )
        )
    for data in (None, "a", 5, [97]):
        if hasattr(guide, "read"):
            found.append((f"read(start, {data!r})", refused("read", [guide.start, data], (OptionError,))))
    found += [
        ("mask(DEAD)", lambda guide: "" if not guide.mask(DEAD).any() else "DEAD allows tokens"),
        ("advance(DEAD, 97)", lambda guide: _is(guide.advance(DEAD, 97), DEAD)),
        ("advance(DEAD, EOS)", lambda guide: _is(guide.advance(DEAD, guide.vocabulary.eos_ids[0]), DEAD)),
        ("is_accepting(DEAD)", lambda guide: _is(guide.is_accepting(DEAD), False)),
        ("distance(DEAD)", lambda guide: "" if guide.distance(DEAD) >= 2**30 else "DEAD can be completed"),
        ("mask_within(DEAD, 9)", lambda guide: "" if not guide.mask_within(DEAD, 9).any() else "DEAD allows tokens"),
        ("a NumPy state", lambda guide: _is(guide.advance(np.int64(guide.start), np.int64(10**6)), DEAD)),
        ("writing to a mask", _writes),
        ("a state of another guide", _foreign),
    ]
    return found


def _is(found: Any, expected: Any) -> str:
    return "" if found == expected else f"answers {found!r}, not {expected!r}"


def _within(guide: Any, left: int) -> str:
    allowed = guide.mask_within(guide.start, left).any()
    return _is(
        bool(allowed),
        bool(left >= max(1, guide.distance(guide.start))) or (left >= 0 and guide.is_accepting(guide.start)),
    )


def _writes(guide: Any) -> str:
    before = guide.mask(guide.start).copy()
    with suppress(ValueError):
        guide.mask(guide.start)[:] = 0
    return "" if np.array_equal(before, guide.mask(guide.start)) else "a caller can change the mask of a state"


def _foreign(guide: Any) -> str:
    from trellm.errors import StateError
    from trellm.guides import RegexGuide

    other = RegexGuide("[a-z]{1,60}[0-9]*", guide.vocabulary)
    state = other.start
    for token in [97] * 50:
        state = other.advance(state, token)
        for ask in (guide.mask, guide.is_accepting, guide.distance):
            try:
                ask(state)
            except StateError:
                continue
    return ""


def probe(make: Callable[[str], Any], name: str, answers: Answers, question: Question) -> str:
    """What is wrong with an answer, found out in a process of its own; empty if nothing is."""
    found = answer_of(lambda: _asked(make, answers, question), 30)
    return f"CRASH {found.ended} {found.where}" if found.value is None else found.value


def _asked(make: Callable[[str], Any], answers: Answers, question: Question) -> str:
    guide = make("states")
    try:
        wrong = question[1](guide)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__}: {str(error)[:100]} ({Path(place.filename).name}:{place.lineno})"
    return wrong or differences(guide, answers)


def probe_all(only: str = "", every: int = 1) -> Counter[str]:
    """Ask every so many-th question; prints what is wrong and counts it by guide."""
    from trellm import Vocabulary
    from trellm.kernels.jit.compiling import keep_quiet

    keep_quiet()
    vocabulary = Vocabulary.from_bytes()
    sparse = Vocabulary([*(bytes([byte]) for byte in range(32, 127)), b"ab", b"12", None], [97])
    counts: Counter[str] = Counter()
    for name, make in makers(vocabulary, sparse).items():
        if only not in name:
            continue
        guide = make("reference")
        answers = recorded(guide)
        for number, question in enumerate(questions(guide, name)):
            if (number + len(name)) % every:
                continue
            wrong = probe(make, name, answers, question)
            counts["asked"] += 1
            if wrong:
                counts[name] += 1
                print(f"{name}: {question[0]}: {wrong}", flush=True)
    return counts


def main() -> None:
    """Ask everything."""
    parser = argparse.ArgumentParser(description="States and tokens that guides never gave out")
    parser.add_argument("--only", default="", help="only guides with this in their name")
    parser.add_argument("--every", type=int, default=1, help="only every Nth question")
    arguments = parser.parse_args()
    counts = probe_all(arguments.only, arguments.every)
    print(dict(counts))
    if len(counts) > 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
