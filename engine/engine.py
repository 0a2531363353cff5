"""The engine: one model, its memory, and all that runs on it, whoever asked for it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

from ..checks import shown, whole
from ..errors import Cancelled, ModelError, OptionError
from ..guides.locks import is_held, new_lock
from .decode.sequence import CommittedPrefix, Request
from .handle import Handle, Pairs
from .memory.pool import free_bytes, shown_size
from .memory.tables import BLOCK
from .models.protocol import Model, SourceModel, check_model, media_of
from .options import Options, RunOptions
from .prompts.given import AnyPrompts, prompts_of
from .results import Generation, keeping
from .schedule.call import Call, RequestOutput
from .schedule.core import EngineCore
from .schedule.scheduler import LEAST, LONGEST, SchedulerConfig, chunk_or_gap
from .search import Target

AHEAD, AHEAD_STARTED = 32, 8
"""So many tokens sequences may get in a step where they go on by themselves: with one caller; with a thread for all."""


class Engine:
    """Owns a model's memory, and runs the requests of all callers in one batch; see docs/engine.md.

    model: what `generate.regex(model, ...)` and the others take. They run on the model's engine, so that calls from
        several threads share its steps; it is made when it is first needed, by `Engine(model, ...)` with other sizes.
    memory: bytes for keys, values and states; by default half of what is free. On the CPU only what is used is really
        taken.
    texts: how many may be read at once. tokens: how many tokens of prompts a step reads where it holds up no text of
        another call that is being written.
    max_gap_ms: where it does, as many as let no more time pass between two tokens of such a text, by what steps have
        taken so far; 16 at least, and more where the sequences take most of that time themselves. chunk: so many
        instead. By default 100 ms on the CPU, else a chunk of 512.
    step_seconds: of the last step that the engine's own thread took

    No thread is started: whoever waits for a result takes the engine's steps, one caller at a time, for all; the others
    find out meanwhile what their constraints have to. After `start()` two threads of its own do. Usable in a `with`
    block, which closes it.
    Raises OptionError.
    """

    def __init__(
        self,
        model: Model,
        *,
        memory: int | None = None,
        texts: int = 256,
        tokens: int = 2048,
        chunk: int | None = None,
        max_gap_ms: float | None = None,
    ) -> None:
        check_model(model, "Engine")
        self.model = model
        self._config = SchedulerConfig(
            whole(texts, "texts", 1, LONGEST),
            whole(tokens, "tokens", LEAST, LONGEST),
            *chunk_or_gap(model, chunk, max_gap_ms),
        )
        given = None if memory is None else whole(memory, "memory", 1, 1 << 60)
        self._blocks, self._slots = blocks_for(model, given), slots_for(model, given)
        self._lock = new_lock()
        self._loop = EngineCore(model, self._blocks, self._config, self._slots)
        self._entering: deque[Call] = deque()
        self._news, self._work = _conditions()
        self._thread: threading.Thread | None = None
        self._preparer: threading.Thread | None = None
        self._watchers: list[Callable[[], None]] = []
        self._is_closed = False
        self.step_seconds = 0.0
        _ENGINES.add(self)
        before = _engine_of(model)
        if before is None or not before._is_stepping:
            if before is not None and before.is_busy:
                raise OptionError("the model has an engine that is at work; close that one first, or use it")
            _remember(model, self)

    @classmethod
    def of(cls, model: Model) -> Engine:
        """The engine of a model: the one that was made last, as long as it is open, or else a new one.

        A model whose own code calls a generator with it, in the midst of a step, gets one of its own.
        """
        with _MAKING:
            found = _engine_of(model)
            return cls(model) if found is None or found._is_closed or found._is_stepping else found

    def submit(self, generator: Any, prompts: AnyPrompts, **options: Any) -> Handle:
        """Enter prompts for a generator of this model, with the options of its `run`; returns at once.

        Raises as the generator's `run` does for what cannot be run.
        """
        if isinstance(generator, type) or not (hasattr(generator, "job") and hasattr(generator, "result")):
            raise OptionError(f"submit takes a generator such as generate.text(model), not {shown(generator)}")
        chosen = Options.of(RunOptions, options)
        if chosen.fields:
            raise OptionError("fields=True scores values when a text is there; call the generator's run()")
        several, is_single = prompts_of(prompts)
        return Handle(self, [(generator, prompt) for prompt in several], chosen, is_single=is_single)

    def step(self) -> bool:
        """One step for all that runs; whether there is more to do. Another thread's step is waited for."""
        self._check_not_stepping()
        with self._held():
            self._step()
            return self.is_busy

    @property
    def is_busy(self) -> bool:
        """True if anything is running."""
        if any(not call.is_cancelled for call in list(self._entering)):
            return True
        return any(call.groups or call.is_waiting for call in list(self._loop.calls))

    @property
    def held_bytes(self) -> int:
        """Bytes that the sequences running hold, what several share counted once."""
        return self._loop.held_blocks * self.model.block_bytes + self._loop.held_slots * self.model.state_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of what no text running has, and a text to come may begin with, and of images, audio and features."""
        media = media_of(self.model)
        return self._loop.kept_blocks * self.model.block_bytes + (0 if media is None else media.bytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes for keys, values and states."""
        return self._blocks * self.model.block_bytes + self._slots * self.model.state_bytes

    def start(self) -> Engine:
        """Let a thread of the engine's own take the steps, until it is closed.

        Another finds out what takes long of constraints, so that only their own texts wait for it.
        """
        with self._news:
            self._check_open()
            if not self.is_started:
                self._thread = threading.Thread(target=self._serve, name="trellm engine", daemon=True)
                self._preparer = threading.Thread(target=self._prepare_all, name="trellm constraints", daemon=True)
                self._preparer.start()
                self._loop.waiting.is_attended = True
                self._thread.start()
        return self

    def watch(self, told: Callable[[], None]) -> None:
        """Let a function be called in the engine's own thread after each of its steps, which wait for it."""
        self._watchers = [*self._watchers, told]

    def unwatch(self, told: Callable[[], None]) -> None:
        """Let it be called no more."""
        self._watchers = [each for each in self._watchers if each != told]

    def close(self) -> None:
        """Cancel all that runs, and give the memory back. What was submitted and not finished raises Cancelled."""
        self._is_closed = True
        self.tell()
        for thread in (self._thread, self._preparer):
            if thread is not None and thread is not threading.current_thread():
                self._loop.stop_waiting()
                thread.join()
        with self._lock:
            for call in [*self._entering, *self._loop.calls]:
                call.is_cancelled = True
            self._entering.clear()
            self._loop.close()
        self.tell()
        if _engine_of(self.model) is self:
            _forget(self.model)

    def enter(self, requests: Sequence[Request], limit: int) -> Call:
        """Let requests run, at most `limit` texts of them at once. Raises OptionError for what can never fit."""
        for request in requests:
            check_fits(self.model, request, self._blocks, self._slots)
        call = Call(requests, limit)
        self._enter(call)
        return call

    def again(self, call: Call, request: Request) -> None:
        """A further request of a call."""
        call.again(request)
        self._enter(call)

    def cancel(self, call: Call) -> None:
        """Let nothing more come of a call; its memory is free after the step that is under way."""
        call.is_cancelled = True
        # A handle may be given up in the midst of a step of this thread, by Python's garbage collector.
        if not self._is_stepping and self._lock.acquire(blocking=False):
            try:
                self._take_up()
                self._loop.forget()
            finally:
                self._lock.release()
        self.tell()

    def wait(self, call: Call, *, every_step: bool = False) -> None:
        """Take a step, or let others take some, until there may be an outcome of a call. Raises Cancelled.

        every_step: return after each step, for what has become certain in it
        """
        self._check_not_stepping()
        call.waiting += 1
        try:
            seen = self._loop.steps
            if self.is_started:
                with self._news:
                    self._news.wait_for(lambda: self._is_over(call) or (every_step and self._loop.steps != seen))
            else:
                self._help_step(call, seen if every_step else None)
        finally:
            call.waiting = max(0, call.waiting - 1)  # a fork has nobody waiting
        if self._is_closed and not call.outcomes:
            raise Cancelled("the engine was closed before this was finished")

    def outcomes(self, call: Call) -> Iterator[tuple[int, RequestOutput]]:
        """The requests of a call by number, with what has come of them so far; each once."""
        for number, outcome in list(call.outcomes.items()):
            yield number, outcome
            call.take(number)

    def certain(self, call: Call) -> dict[int, CommittedPrefix]:
        """Certain beginnings of the texts of running requests, by number."""
        # The engine's own thread takes no step meanwhile.
        with nullcontext() if threading.current_thread() is self._thread else self._held():
            groups = list(call.groups.items())
            return {number: self._loop.certain(group) for number, group in groups if group.work.error is None}

    @property
    def is_started(self) -> bool:
        """True if a thread of its own takes the steps."""
        return self._thread is not None and self._thread.is_alive()

    def tell(self) -> None:
        """Let those look who wait for a step, or for an outcome; the thread of constraints where it has work."""
        with self._news:
            self._news.notify_all()
            # It is not woken for nothing: after each step that would take the interpreter from the engine's thread.
            if self._preparer is not None and (self._is_closed or self._loop.to_prepare() is not None):
                self._work.notify()

    def after_fork(self) -> None:
        """Begin anew in a process that has none of the threads: what others waited for is nobody's here."""
        self._thread = self._preparer = None
        self._news, self._work = _conditions()
        self._loop.after_fork()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "started" if self.is_started else "open"
        return f"<Engine of {self.model!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a model has no engine yet."""
        return type(None), ()

    @property
    def _is_stepping(self) -> bool:
        """True if this thread is in the midst of a step, or one of the engine's own, which cannot wait for itself."""
        return is_held(self._lock) or threading.current_thread() in (self._thread, self._preparer)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OptionError("the engine is closed; make another: Engine(model)")

    def _check_not_stepping(self) -> None:
        """Raise OptionError in a thread that would wait for itself."""
        if self._is_stepping:
            raise OptionError(
                "this thread takes this engine's steps, so that what is called within them (its model, a constraint, "
                "what watches it, a signal handler) cannot wait for another; call the generator instead, which then "
                "has an engine of its own"
            )

    def _enter(self, call: Call) -> None:
        self._check_open()
        self._entering.append(call)
        if self.is_started:
            self.tell()

    def _step(self, most: int = 1) -> None:
        """One step; the lock is held. most: tokens that a sequence may get in it."""
        self._take_up()
        self._loop.step(most, self._is_wanted)

    def _take_up(self) -> None:
        """Let the loop have the calls that entered; the lock is held."""
        while self._entering:
            if self._entering[0] not in self._loop.calls:
                self._loop.calls.append(self._entering[0])
            self._entering.popleft()

    @contextmanager
    def _held(self) -> Generator[None]:
        """A block in which no step is taken; then those who wait for one look whether it is theirs."""
        try:
            with self._lock:
                yield
        finally:
            self.tell()

    def _is_over(self, call: Call) -> bool:
        """True if who waits for a call has something to look at."""
        return bool(call.outcomes) or call.done or self._is_closed

    def _help_step(self, call: Call, seen: int | None) -> None:
        """Take a step; or, where another thread does, find out what a text of the call waits for, if one does.

        seen: after how many steps the caller looked, for one that wants to look after each
        """

        def has_news() -> bool:
            return self._is_over(call) or (seen is not None and self._loop.steps != seen)

        try:
            try:
                with self._news:
                    self._news.wait_for(lambda: has_news() or call.to_prepare() or self._lock.acquire(blocking=False))
                if is_held(self._lock) and not self._is_over(call):
                    self._step(AHEAD if seen is None else 1)
            finally:
                self._release_step()
        except BaseException:
            self._release_step()  # once more, since Ctrl-C may have come in the midst of it
            raise
        preparation = call.to_prepare()
        if preparation is not None:
            preparation.run()

    def _release_step(self) -> None:
        """Give the lock of steps back, if this thread has it, and let others look."""
        if is_held(self._lock):
            self._lock.release()
            self.tell()

    def _prepare_all(self) -> None:
        """Loop of the engine's other thread: it finds out what texts wait for, the first of them first."""
        while True:
            with self._work:
                self._work.wait_for(lambda: self._is_closed or self._loop.to_prepare())
                if self._is_closed:
                    return
            preparation = self._loop.to_prepare()
            if preparation is not None:
                preparation.run()

    def _is_wanted(self) -> bool:
        """True if there is something to do that the step under way does not know of."""
        return self._is_closed or bool(self._entering) or any(call.is_cancelled for call in self._loop.calls)

    def _serve(self) -> None:
        """Loop of the engine's own thread."""
        while True:
            with self._news:
                self._news.wait_for(lambda: self._is_closed or self.is_busy)
                if self._is_closed:
                    return
            for act in (self._timed_step, *self._watchers):
                try:
                    act()
                except BaseException as error:
                    self._fail_all(error)
            self.tell()

    def _timed_step(self) -> None:
        with self._lock:
            begin = perf_counter()
            self._step(AHEAD_STARTED)
            self.step_seconds = perf_counter() - begin

    def _fail_all(self, error: BaseException) -> None:
        """Let an error that ended a step of the engine's thread, and is nobody's in particular, be everybody's."""
        with self._lock:
            for call in self._loop.calls:
                cause = error if isinstance(error, Exception) else ModelError(f"{type(error).__name__}: {error}")
                for group in call.groups.values():
                    group.work.error = cause
                call.refuse(cause)


def _conditions() -> tuple[threading.Condition, threading.Condition]:
    """Conditions of callers and the engine's thread, and of the thread of constraints, under one lock."""
    lock = new_lock()
    return threading.Condition(lock), threading.Condition(lock)


_NAME = "_trellm_engine"
_MAKING = new_lock()
_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


def _engine_of(model: Model) -> Engine | None:
    found: Any = getattr(model, _NAME, None)
    return found if isinstance(found, Engine) and found.model is model else None


def _remember(model: Any, engine: Engine) -> None:
    """Keep an engine as long as its model, where that takes attributes."""
    if hasattr(model, "__dict__"):
        setattr(model, _NAME, engine)


def _forget(model: Any) -> None:
    if _NAME in getattr(model, "__dict__", {}):
        delattr(model, _NAME)


def _tell_all() -> None:
    """Let those look again who found the lock of steps taken by the thread that forked, and wait to be told."""
    for engine in list(_ENGINES):
        engine.tell()


def _forget_threads() -> None:
    """Begin anew in a forked process, whose engines' threads have stayed behind: whoever waits takes the steps."""
    for engine in list(_ENGINES):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    # These run after those of `guides.locks`, which are registered before, and so find all locks free.
    os.register_at_fork(after_in_parent=_tell_all, after_in_child=_forget_threads)


@atexit.register
def _end_threads() -> None:
    """Close engines whose threads Python cannot end in the midst of a model's native code, which aborts the process."""
    for engine in list(_ENGINES):
        if engine.is_started:
            engine.close()


SHARE = 0.5
"""Of what is free, what an engine takes where it is not told; on the CPU only what is used is really taken."""
MOST = 1 << 22
MOST_SLOTS = 1024
"""Sequences that keep a state and are read at once; their slots are made when they are first used."""
LARGE = 1 << 28


def blocks_for(model: Model, memory: int | None) -> int:
    """Number of an engine's blocks: of so many bytes, by default a share of what is free; 0 for a model without.

    Raises OptionError where there is no room for one.
    """
    size = model.block_bytes
    if size == 0:
        return MOST if model.state_bytes else 0
    free = free_bytes(getattr(model, "device", None))
    taken = slots_for(model, memory) * model.state_bytes
    if memory is None:
        return MOST if free is None else max(1, min((int(free * SHARE) - taken) // size, MOST))
    if free is not None and memory > free:
        raise OptionError(f"memory={memory}: {shown_size(memory)}, and {shown_size(free)} are free; ask for less")
    if memory - taken < size:
        raise OptionError(
            f"memory={memory}: a block of {BLOCK} tokens of this model takes {size} bytes, so that there is room for "
            "none; ask for more"
        )
    return min((memory - taken) // size, MOST)


def slots_for(model: Model, memory: int | None) -> int:
    """Number of sequences with a slot: half of the memory is theirs, all where there are no keys and values.

    0 for a model that keeps no states. Raises OptionError where there is no room for one.
    """
    size = model.state_bytes
    if size == 0:
        return 0
    free = free_bytes(getattr(model, "device", None))
    given = memory
    if given is None:
        given = MOST_SLOTS * size * 2 if free is None else int(free * SHARE)
    share = given // 2 if model.block_bytes else given
    if share < size:
        raise OptionError(
            f"memory={given}: the state of a text of this model takes {size} bytes, so that there is room for none; "
            f"ask for {size * (2 if model.block_bytes else 1)} or more"
        )
    return min(share // size, MOST_SLOTS)


def check_fits(model: Model, request: Request, blocks: int, slots: int = 0) -> None:
    """Raise OptionError for a request that could not run even if nothing else did."""
    width, source = request.width, request.start.source
    kind = "texts" if isinstance(request.search, Target) else "beams"
    logits = width * model.vocabulary.size * 4
    apart = model.source_bytes(len(source)) if source and isinstance(model, SourceModel) else 0
    free = free_bytes(getattr(model, "device", None)) if logits + apart >= LARGE else None
    if free is not None and logits + apart > free:
        encoded = f" and the prompt of {len(source)} tokens, encoded," if apart else ""
        raise OptionError(
            f"search={request.search!r}: the logits of {width} {kind}{encoded} take {shown_size(logits + apart)}, and "
            f"{shown_size(free)} are free; ask for fewer {kind}, or shorten the prompt"
        )
    if slots and width > slots:
        raise OptionError(
            f"search={request.search!r}: {width} {kind} take {shown_size(width * model.state_bytes)} of memory for "
            f"their states, and the engine has {shown_size(slots * model.state_bytes)}; ask for fewer {kind}, or give "
            "the engine more: Engine(model, memory=...)"
        )
    if blocks == 0:
        return
    prompt, output = request.start.size, request.budget
    needed = -(-prompt // BLOCK) + width * (-(-output // BLOCK) + 1)
    if model.window is not None:
        needed = min(needed, width * (-(-model.window // BLOCK) + 2) + -(-prompt // BLOCK))
    if needed > blocks:
        size = model.block_bytes
        beams = f" in {width} {kind}" if width > 1 else ""
        raise OptionError(
            f"prompt {request.number} of {prompt} tokens, with up to {output} of output{beams}, takes "
            f"{shown_size(needed * size)} of memory for keys and values, and the engine has "
            f"{shown_size(blocks * size)}; "
            f"ask for a smaller max_tokens or fewer {kind}, or give the engine more: Engine(model, memory=...)"
        )


Told = Callable[[int, int, Generation[Any]], None]
"""A listener to every text that is finished: the number of its prompt, that of the sample, and the result."""


def run_together(pairs: Pairs, options: Options, told: Told | None = None) -> list[Any]:
    """Run generators of one model in one batch: for each pair a Generation, or a list if `search.n > 1`.

    Ctrl-C raises Interrupted. What else goes wrong midway is raised as it is, and its `finished` holds the results so
    far, as that of Interrupted does.
    """
    if not pairs:
        return []
    handle = Handle(Engine.of(pairs[0][0].model), pairs, options)
    with keeping(handle.saved), _bar(len(pairs) * options.search.n, options.progress) as bar:
        for each in handle.finished():
            if bar is not None:
                bar.update()
            if told is not None:
                assert each.result is not None, "it is the last piece of a text"
                told(each.prompt, each.sample, each.result)
        return handle.results()


def _bar(total: int, progress: bool | None) -> Any:
    if progress if progress is not None else total > 1 and sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, unit="text")
    return nullcontext()
