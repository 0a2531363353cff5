"""The engine: one model, its memory, and all requests that run on it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

from ..checks import check_int, shown
from ..errors import Cancelled, ModelError, OptionError
from ..guides.locks import is_held, new_lock
from .decode.sequence import CommittedPrefix, Request
from .handle import Handle, Pairs
from .memory.pool import free_bytes, shown_size
from .memory.tables import BLOCK
from .models.media.encoder import media_of
from .models.protocol import Model, SourceModel, check_model
from .options import Options, RunOptions
from .prompts.arguments import AnyPrompts, prompts_of
from .results import Generation, keeping
from .schedule.call import Call
from .schedule.core import EngineCore
from .schedule.scheduler import LEAST, LONGEST, SchedulerConfig, chunk_or_gap
from .search import Target

AHEAD, AHEAD_STARTED = 32, 8
"""The most tokens of a sequence in a step of a device batch: with a caller's thread, and with the engine's own."""


class Engine:
    """Owner of a model's memory. It runs the requests of all callers in one batch; see docs/engine.md.

    model: the model of `generate.regex(model, ...)` and the others. They use the model's engine, so that calls from
        several threads share its steps. It is created on first use; create it with `Engine(model, ...)` to set its
        sizes.
    memory: bytes of the KV cache and states; by default half of the free memory. A CPU allocates it on use.
    texts: greatest number of running sequences. tokens: greatest number of prompt tokens in a step that delays no
        decode of another call.
    max_gap_ms: bound of the time between two tokens of a sequence, which limits prompt tokens beside decode by measured
        step times; at least 16 are read, and more if decode takes most of the gap itself. chunk: a fixed limit instead.
        By default 100 ms on the CPU, else a chunk of 512.
    step_seconds: duration of the last step of the engine's own thread

    By default no thread is started. A thread that waits for a result runs steps for all callers, one thread at a time,
    and other waiting threads prepare constraints. After `start()` the engine has two threads for both. Use it in a
    `with` block to close it.
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
            check_int(texts, "texts", 1, LONGEST),
            check_int(tokens, "tokens", LEAST, LONGEST),
            *chunk_or_gap(model, chunk, max_gap_ms),
        )
        checked = None if memory is None else check_int(memory, "memory", 1, 1 << 60)
        self._blocks, self._slots = blocks_for(model, checked), slots_for(model, checked)
        self._lock = new_lock()
        self._loop = EngineCore(model, self._blocks, self._config, self._slots)
        self._entering: deque[Call] = deque()
        self._news, self._work = _conditions()
        self._thread: threading.Thread | None = None
        self._preparer: threading.Thread | None = None
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False
        self.step_seconds = 0.0
        _ENGINES.add(self)
        before = _engine_of(model)
        if before is None or not before._is_stepping:
            if before is not None and before.is_busy:
                raise OptionError("the model already has a running engine; close it first, or use it")
            _remember(model, self)

    @classmethod
    def of(cls, model: Model) -> Engine:
        """Return the open engine of a model made last, or else a new one.

        A model that calls a generator with itself within a step gets a separate engine.
        """
        with _MAKING:
            found = _engine_of(model)
            return cls(model) if found is None or found._is_closed or found._is_stepping else found

    def submit(self, generator: Any, prompts: AnyPrompts, **options: Any) -> Handle:
        """Submit prompts for a generator of this model, with the options of its `run`. Return at once.

        Raises the errors of the generator's `run` for invalid requests.
        """
        if isinstance(generator, type) or not (hasattr(generator, "job") and hasattr(generator, "result")):
            raise OptionError(f"submit takes a generator such as generate.text(model), not {shown(generator)}")
        chosen = Options.of(RunOptions, options)
        if chosen.fields:
            raise OptionError(
                "submit does not support fields=True, which scores finished texts; call the generator's run()"
            )
        several, is_single = prompts_of(prompts)
        return Handle(self, [(generator, prompt) for prompt in several], chosen, is_single=is_single)

    def step(self) -> bool:
        """Run one step for all requests, after a step of another thread. Return True if there is more to do."""
        self._check_not_stepping()
        with self._hold_lock():
            self._step()
            return self.is_busy

    @property
    def is_busy(self) -> bool:
        """True if any request is running or waiting."""
        if any(not call.is_cancelled for call in list(self._entering)):
            return True
        return any(call.groups or call.is_waiting for call in list(self._loop.calls))

    @property
    def is_closed(self) -> bool:
        """True once `close` was called."""
        return self._is_closed

    @property
    def held_bytes(self) -> int:
        """Bytes that running sequences hold. Shared blocks count once."""
        return self._loop.held_blocks * self.model.block_bytes + self._loop.held_slots * self.model.state_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes kept for reuse: blocks without holder, images, audio and features."""
        media = media_of(self.model)
        return self._loop.kept_blocks * self.model.block_bytes + (0 if media is None else media.bytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the KV cache and states."""
        return self._blocks * self.model.block_bytes + self._slots * self.model.state_bytes

    def start(self) -> Engine:
        """Start the engine's own thread, which runs all steps until `close`.

        A second thread prepares constraints, so that only their own sequences wait for them.
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

    def watch(self, listener: Callable[[], None]) -> None:
        """Register a function to be called in the engine's own thread after each step, and once by `close`.

        Steps wait for it.
        """
        self._listeners = [*self._listeners, listener]

    def unwatch(self, listener: Callable[[], None]) -> None:
        """Unregister a function of `watch`."""
        self._listeners = [each for each in self._listeners if each != listener]

    def close(self) -> None:
        """Cancel all requests, and release the memory. Unfinished handles raise Cancelled."""
        self._is_closed = True
        self.notify()
        for thread in (self._thread, self._preparer):
            if thread is not None and thread is not threading.current_thread():
                self._loop.stop_waiting()
                thread.join()
        with self._lock:
            for call in [*self._entering, *self._loop.calls]:
                call.is_cancelled = True
            self._entering.clear()
            self._loop.close()
        self.notify()
        if _engine_of(self.model) is self:
            _forget(self.model)
        for listener in self._listeners:
            listener()

    def enter(self, requests: Sequence[Request], limit: int) -> Call:
        """Submit requests with at most `limit` sequences at once. Raises OptionError if one can never fit."""
        for request in requests:
            check_fits(self.model, request, self._blocks, self._slots)
        call = Call(requests, limit)
        self._enter(call)
        return call

    def retry(self, call: Call, request: Request) -> None:
        """Add a request that replaces a finished one of a call."""
        call.requests.append(request)
        self._enter(call)

    def cancel(self, call: Call) -> None:
        """Cancel a call. Its memory is released after the current step."""
        call.is_cancelled = True
        # The garbage collector may drop a handle within a step of this thread.
        if not self._is_stepping and self._lock.acquire(blocking=False):
            try:
                self._pass_calls()
                self._loop.forget()
            finally:
                self._lock.release()
        self.notify()

    def wait(self, call: Call, *, every_step: bool = False) -> None:
        """Run steps, or wait for those of others, until a call may have an outcome. Raises Cancelled.

        every_step: return after each step, to look for committed text
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
            call.waiting = max(0, call.waiting - 1)  # a forked process has no waiting threads
        if self._is_closed and not call.outcomes:
            raise Cancelled("the engine was closed before this call was finished")

    def committed_prefixes(self, call: Call) -> dict[int, CommittedPrefix]:
        """Return the committed prefixes of running requests by number."""
        # the engine's own thread runs no step meanwhile
        with nullcontext() if threading.current_thread() is self._thread else self._hold_lock():
            groups = list(call.groups.items())
            return {number: self._loop.committed_prefix(group) for number, group in groups if group.work.error is None}

    @property
    def is_started(self) -> bool:
        """True if the engine's own thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def notify(self) -> None:
        """Notify threads that wait for a step or an outcome, and the preparation thread if it has work."""
        with self._news:
            self._news.notify_all()
            # A needless wake-up after each step would take the GIL from the engine's thread.
            if self._preparer is not None and (self._is_closed or self._loop.to_prepare() is not None):
                self._work.notify()

    def after_fork(self) -> None:
        """Reset threads and conditions in a forked process, which has none of the threads."""
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
        """Pickle as None: a copy of a model has no engine."""
        return type(None), ()

    @property
    def _is_stepping(self) -> bool:
        """True if this thread is within a step, or is one of the engine's own. It must not wait for the engine."""
        return is_held(self._lock) or threading.current_thread() in (self._thread, self._preparer)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OptionError("the engine is closed; make another: Engine(model)")

    def _check_not_stepping(self) -> None:
        """Raise OptionError in a thread that would wait for itself."""
        if self._is_stepping:
            raise OptionError(
                "this thread runs the engine's steps, so that code called in a step (the model, a constraint, a "
                "callback, a signal handler) cannot wait for another call; call the generator instead, which then uses "
                "an engine of its own"
            )

    def _enter(self, call: Call) -> None:
        self._check_open()
        self._entering.append(call)
        if self.is_started:
            self.notify()

    def _step(self, most: int = 1) -> None:
        """Run one step with the lock held. most: the most tokens of a sequence"""
        self._pass_calls()
        self._loop.step(most, self._is_wanted)

    def _pass_calls(self) -> None:
        """Pass new calls to the loop, with the lock held."""
        while self._entering:
            if self._entering[0] not in self._loop.calls:
                self._loop.calls.append(self._entering[0])
            self._entering.popleft()

    @contextmanager
    def _hold_lock(self) -> Generator[None]:
        """Hold the lock of steps in a block, then notify waiting threads."""
        try:
            with self._lock:
                yield
        finally:
            self.notify()

    def _is_over(self, call: Call) -> bool:
        """Test whether a thread that waits for a call has to look at it."""
        return bool(call.outcomes) or call.done or self._is_closed

    def _help_step(self, call: Call, seen: int | None) -> None:
        """Run a step; if another thread does, run a preparation of the call.

        seen: step count at the caller's last look, if it wants to look after each step
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
            self._release_step()  # again, since Ctrl-C may have interrupted the first one
            raise
        preparation = call.to_prepare()
        if preparation is not None:
            preparation.run()

    def _release_step(self) -> None:
        """Release the lock of steps if this thread holds it, and notify others."""
        if is_held(self._lock):
            self._lock.release()
            self.notify()

    def _prepare_all(self) -> None:
        """Run preparations in order, in the engine's second thread."""
        while True:
            with self._work:
                self._work.wait_for(lambda: self._is_closed or self._loop.to_prepare())
                if self._is_closed:
                    return
            preparation = self._loop.to_prepare()
            if preparation is not None:
                preparation.run()

    def _is_wanted(self) -> bool:
        """Test whether the current step should end for new or cancelled calls."""
        return self._is_closed or bool(self._entering) or any(call.is_cancelled for call in self._loop.calls)

    def _serve(self) -> None:
        """Run steps in the engine's own thread."""
        while True:
            with self._news:
                self._news.wait_for(lambda: self._is_closed or self.is_busy)
                if self._is_closed:
                    return
            for act in (self._timed_step, *self._listeners):
                try:
                    act()
                except BaseException as error:
                    self._fail_all(error)
            self.notify()

    def _timed_step(self) -> None:
        with self._lock:
            begin = perf_counter()
            self._step(AHEAD_STARTED)
            self.step_seconds = perf_counter() - begin

    def _fail_all(self, error: BaseException) -> None:
        """Store an error of the engine's thread that belongs to no single request in all requests."""
        with self._lock:
            for call in self._loop.calls:
                cause = error if isinstance(error, Exception) else ModelError(f"{type(error).__name__}: {error}")
                for group in call.groups.values():
                    group.work.error = cause
                call.refuse(cause)


def _conditions() -> tuple[threading.Condition, threading.Condition]:
    """Return the conditions of callers with the engine's thread, and of the preparation thread, under one lock."""
    lock = new_lock()
    return threading.Condition(lock), threading.Condition(lock)


_NAME = "_trellm_engine"
_MAKING = new_lock()
_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


def _engine_of(model: Model) -> Engine | None:
    found: Any = getattr(model, _NAME, None)
    return found if isinstance(found, Engine) and found.model is model else None


def _remember(model: Any, engine: Engine) -> None:
    """Store an engine in its model, if that accepts attributes."""
    if hasattr(model, "__dict__"):
        setattr(model, _NAME, engine)


def _forget(model: Any) -> None:
    if _NAME in getattr(model, "__dict__", {}):
        delattr(model, _NAME)


def _notify_all() -> None:
    """Notify threads that found the step lock held by a forking thread."""
    for engine in list(_ENGINES):
        engine.notify()


def _forget_threads() -> None:
    """Reset engines in a forked process. Their threads do not exist there."""
    for engine in list(_ENGINES):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    # Runs after the handlers of `guides.locks`, which were registered before, so all locks are free.
    os.register_at_fork(after_in_parent=_notify_all, after_in_child=_forget_threads)


@atexit.register
def _end_threads() -> None:
    """Close started engines at exit. Python cannot end a thread inside native code, and the process would abort."""
    for engine in list(_ENGINES):
        if engine.is_started:
            engine.close()


SHARE = 0.5
"""Default share of free memory. A CPU allocates it on use."""
MAX_BLOCKS = 1 << 22
MAX_SLOTS = 1024
"""Greatest number of state slots. They are allocated on first use."""
LARGE = 1 << 28


def blocks_for(model: Model, memory: int | None) -> int:
    """Return the number of an engine's blocks, by default from a share of free memory; 0 for models without KV cache.

    Raises OptionError if there is no room for one.
    """
    size = model.block_bytes
    if size == 0:
        return MAX_BLOCKS if model.state_bytes else 0
    free = free_bytes(getattr(model, "device", None))
    slot_bytes = slots_for(model, memory) * model.state_bytes
    if memory is None:
        return MAX_BLOCKS if free is None else max(1, min((int(free * SHARE) - slot_bytes) // size, MAX_BLOCKS))
    if free is not None and memory > free:
        raise OptionError(
            f"memory={memory}: {shown_size(memory)} exceed the {shown_size(free)} that are free; ask for less"
        )
    if memory - slot_bytes < size:
        raise OptionError(
            f"memory={memory}: too small for one block of {BLOCK} tokens, which takes {size} bytes; ask for more"
        )
    return min((memory - slot_bytes) // size, MAX_BLOCKS)


def slots_for(model: Model, memory: int | None) -> int:
    """Return the number of state slots. They get half of the memory, or all of it without a KV cache.

    0 for models without states. Raises OptionError if there is no room for one.
    """
    size = model.state_bytes
    if size == 0:
        return 0
    free = free_bytes(getattr(model, "device", None))
    budget = memory
    if budget is None:
        budget = MAX_SLOTS * size * 2 if free is None else int(free * SHARE)
    share = budget // 2 if model.block_bytes else budget
    if share < size:
        raise OptionError(
            f"memory={budget}: too small for the state of one sequence, which takes {size} bytes; "
            f"ask for {size * (2 if model.block_bytes else 1)} or more"
        )
    return min(share // size, MAX_SLOTS)


def check_fits(model: Model, request: Request, blocks: int, slots: int = 0) -> None:
    """Raise OptionError for a request that does not fit even alone."""
    width, source = request.width, request.start.source
    kind = "texts" if isinstance(request.search, Target) else "beams"
    logits = width * model.vocabulary.size * 4
    apart = model.source_bytes(len(source)) if source and isinstance(model, SourceModel) else 0
    free = free_bytes(getattr(model, "device", None)) if logits + apart >= LARGE else None
    if free is not None and logits + apart > free:
        encoded = f" and the encoded prompt of {len(source)} tokens" if apart else ""
        raise OptionError(
            f"search={request.search!r}: the logits of {width} {kind}{encoded} take {shown_size(logits + apart)}, but "
            f"{shown_size(free)} are free; ask for fewer {kind}, or shorten the prompt"
        )
    if slots and width > slots:
        raise OptionError(
            f"search={request.search!r}: {width} {kind} take {shown_size(width * model.state_bytes)} of memory for "
            f"their states, but the engine has {shown_size(slots * model.state_bytes)}; ask for fewer {kind}, or give "
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
            f"{shown_size(needed * size)} of memory for keys and values, but the engine has "
            f"{shown_size(blocks * size)}; "
            f"ask for a smaller max_tokens or fewer {kind}, or give the engine more: Engine(model, memory=...)"
        )


OnResult = Callable[[int, int, Generation[Any]], None]
"""A listener to finished texts: number of the prompt, number of the sample, and the result."""


def run_together(pairs: Pairs, options: Options, on_result: OnResult | None = None) -> list[Any]:
    """Run generators of one model in one batch. Return a Generation for each pair, or a list if `search.n > 1`.

    Ctrl-C raises Interrupted. Other exceptions are raised unchanged. `finished` of both holds the results so far.
    """
    if not pairs:
        return []
    handle = Handle(Engine.of(pairs[0][0].model), pairs, options)
    with keeping(handle.saved), _progress_bar(len(pairs) * options.search.n, options.progress) as bar:
        for each in handle.finished():
            if bar is not None:
                bar.update()
            if on_result is not None:
                assert each.result is not None, "it is the last piece of a text"
                on_result(each.prompt, each.sample, each.result)
        return handle.results()


def _progress_bar(total: int, progress: bool | None) -> Any:
    if progress if progress is not None else total > 1 and sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, unit="text")
    return nullcontext()
