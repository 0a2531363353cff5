"""Cases in forked processes, so that one that hangs or crashes ends nothing but itself."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import resource
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from verdicts import Outcome

TICKS = os.sysconf("SC_CLK_TCK")
Run = Callable[[int], Outcome]


class Answer(NamedTuple):
    """What a function answered in a process of its own; if it did not, how the process ended, and where if known."""

    value: Any
    ended: str = ""
    where: str = ""


def answer_of(run: Callable[[], Any], seconds: float = math.inf) -> Answer:
    """Call a function, whose answer JSON can write, in a forked process, which is ended after so many seconds."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as stack:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                faulthandler.enable(stack, all_threads=False)
                os.write(write, json.dumps(run()).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(write)
        data, deadline = b"", time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([read], [], [], 1)[0]:
                more = os.read(read, 1 << 16)
                if not more:
                    break
                data += more
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(read)
        _, status = os.waitpid(pid, 0)
        if data:
            return Answer(json.loads(data))
        stack.seek(0)
        ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no answer"
        return Answer(None, ended, _innermost(stack.read().decode(errors="replace")))


def warmed() -> Any:
    """The vocabulary of single bytes, when all kernels are compiled and loaded."""
    from trellm import Vocabulary
    from trellm.cli.warmup import warm
    from trellm.kernels.jit.compiling import keep_quiet

    keep_quiet()
    warm(lambda name, seconds: None)
    return Vocabulary.from_bytes()


class Worker:
    """A forked process that runs cases one after the other, and says before each which it begins.

    address_space: bytes that it may take beyond what it has at the fork
    """

    def __init__(self, run: Run, numbers: range, address_space: int) -> None:
        self.current = numbers.start - 1
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115
        self._buffer = b""
        self._began, self._since = 0.0, time.monotonic()
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            _serve(run, numbers, write, self._stack, address_space)
        os.close(write)
        self.pipe = read

    def lines(self) -> Iterator[dict[str, Any]] | None:
        """What the process has written; None at its end."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = [json.loads(line) for line in lines]
        for line in found:
            if "begin" in line:
                self.current = line["begin"]
                self._began, self._since = self.cpu(), time.monotonic()
        return iter(found)

    def cpu(self) -> float:
        """The seconds that the process has worked."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                parts = file.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(parts[11]) + int(parts[12])) / TICKS

    def is_stuck(self, seconds: float) -> bool:
        """Whether the case at work has worked, or waited, for too long."""
        return self.cpu() - self._began > seconds or time.monotonic() - self._since > 20 * seconds

    def kill(self) -> str:
        """End the process; where it was."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.2)
        os.kill(self.pid, signal.SIGKILL)
        return self.end()[1]

    def end(self) -> tuple[int, str]:
        """Wait for its end: the signal that ended it, and where it was if that is known."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        self._stack.seek(0)
        stack = self._stack.read().decode(errors="replace")
        self._stack.close()
        return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)), _innermost(stack)


def run_range(run: Run, numbers: range, *, seconds: float = 10.0, address_space: int = 4 << 30) -> Iterator[Outcome]:
    """The outcomes of cases, run one after the other; a case that takes longer than `seconds` of work is ended."""
    next_one = numbers.start
    while next_one < numbers.stop:
        worker = Worker(run, range(next_one, numbers.stop), address_space)
        hang: Outcome | None = None
        while True:
            ready, _, _ = select.select([worker.pipe], [], [], 0.5)
            if ready:
                lines = worker.lines()
                if lines is None:
                    break
                for line in lines:
                    if "outcome" in line:
                        next_one = line["outcome"]["case"] + 1
                        yield Outcome(**line["outcome"])
            elif worker.current >= next_one and worker.is_stuck(seconds):
                where = worker.kill()
                hang = Outcome(worker.current, "", "hang", where=where, seconds=round(seconds, 1), message="was ended")
                break
        if hang is None:
            signal_number, where = worker.end()
            if next_one >= numbers.stop:
                return
            name = signal.Signals(signal_number).name if signal_number > 0 else f"exit {-signal_number}"
            hang = Outcome(worker.current, "", "crash", error=name, where=where)
        next_one = hang.case + 1
        yield hang


def _serve(run: Run, numbers: range, pipe: int, stack: IO[bytes], address_space: int) -> None:
    """The life of a forked process."""
    try:
        faulthandler.enable(stack, all_threads=False)
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit = _address_space() + address_space
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in numbers:
            os.write(pipe, b'{"begin": %d}\n' % number)
            outcome = run(number)
            os.write(pipe, json.dumps({"outcome": outcome.as_json()}).encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(3)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _innermost(stack: str) -> str:
    """The innermost places of a stack as faulthandler writes it."""
    places = [line.strip() for line in stack.splitlines() if line.strip().startswith("File")]
    return " < ".join(place.removeprefix("File ").replace('"', "").replace(", line ", ":") for place in places[:4])
