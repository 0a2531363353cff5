"""What became of a case, in one place: run it, and say how it went."""

from __future__ import annotations

import linecache
import resource
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import probe as probing
from cases import Case
from probe import Probe, Wrong

MAX_KIB = 512 << 10
"""How much the memory of a process may grow in one case, in KiB."""
LATE = {"LimitError", "StateError", "OptionError", "Cancelled"}
"""Errors that may be raised once a guide is made."""
BAD = ("foreign exception", "late error", "wrong", "hang", "memory", "crash")
FINE = ("fine", "refused", "limited")


@dataclass
class Outcome:
    """How a case went. verdict: of FINE or BAD; error: the class; where: the innermost places in trellm."""

    case: int
    kind: str
    verdict: str
    error: str = ""
    message: str = ""
    where: str = ""
    slowest: str = ""
    seconds: float = 0.0
    shown: str = ""

    def as_json(self) -> dict[str, Any]:
        """All fields that say something."""
        return {name: value for name, value in asdict(self).items() if name == "case" or value not in ("", 0.0)}


def judged(case: Case, number: int) -> Outcome:
    """Run a case and judge it."""
    from trellm.errors import LimitError, TrellmError

    probe = Probe()
    error: BaseException | None = None
    before = _forget_peak()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            case.run(probe)
        verdict = "fine"
    except Wrong as raised:
        error, verdict = raised, "wrong"
    except TrellmError as raised:
        late = probe.made and type(raised).__name__ not in LATE
        error, verdict = raised, "late error" if late else "limited" if isinstance(raised, LimitError) else "refused"
    except MemoryError as raised:
        error, verdict = raised, "memory"
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # a panic of a library in Rust is no Exception
        error, verdict = raised, "foreign exception"
    name, seconds = probe.slowest
    # Much memory takes the system seconds to give where it has to be found first.
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > MAX_KIB and verdict in FINE:
        verdict = "memory"
    elif seconds > probing.SLOW and verdict in FINE:
        verdict = "hang"
    outcome = Outcome(number, case.kind, verdict, slowest=name, seconds=round(seconds, 3))
    if error is not None:
        outcome.error = type(error).__name__
        outcome.message = _message(error)
        outcome.where = _where(error)
    if verdict == "memory" and error is None:
        outcome.message = f"grew by {grown >> 10} MiB"
    if verdict in BAD:
        outcome.shown = case.shown
    return outcome


def _message(error: BaseException) -> str:
    try:
        return str(error)[:600]
    except Exception as second:
        return f"<its own message raises {type(second).__name__}: {second}>"


def _where(error: BaseException) -> str:
    """The innermost three places in trellm, and the innermost of all."""
    frames = list(traceback.walk_tb(error.__traceback__))[-400:]
    root = Path(__file__).resolve().parents[2]
    places: list[str] = []
    for frame, line in frames:
        path = Path(frame.f_code.co_filename)
        inside = path.is_relative_to(root) or "trellm" in path.parts
        if inside and "benchmarks" not in path.parts:
            parts = (
                path.parts[path.parts.index("trellm") + 1 :] if "trellm" in path.parts else path.relative_to(root).parts
            )
            places.append(f"{'/'.join(parts)}:{line}")
    last = frames[-1] if frames else None
    if last is not None and last[0].f_code.co_filename not in places:
        text = linecache.getline(last[0].f_code.co_filename, last[1]).strip()
        return " > ".join([*places[-3:], text[:100]])
    return " > ".join(places[-3:])


def _forget_peak() -> int:
    """Begin to measure the peak of memory anew, where the system can; what it is now, in KiB."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # the peak is then that of the process, which is only too high
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
