"""`trellm warmup`: compile what is compiled once per machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..tokenizers_adapter import Vocabulary

Report = Callable[[str, float], None]
Thunks = list[tuple[str, Callable[[], object]]]


@click.command()
@click.option("--verbose", "-v", is_flag=True, help="Also say how long each kernel took.")
def warmup(verbose: bool) -> None:
    """Compile all kernels now, so that no later process has to.

    Run it when building an image. The compiled kernels are kept beside the package, or where
    NUMBA_CACHE_DIR says; once they are there, this takes about a second.
    """

    def report(name: str, seconds: float) -> None:
        if verbose:
            click.echo(f"{seconds:7.2f} s  {name}")

    click.echo(f"all kernels are ready; this took {warm(report):.1f} s")


def warm(report: Report) -> float:
    """Compile or load every CPU kernel; seconds it took. `report` is told each one's name and seconds.

    Those that have nothing in common with most of the guides are compiled by a process beside this one, if there is
    a core for it.
    """
    from ..kernels.jit.compiling import keep_quiet

    keep_quiet()
    begin = time.perf_counter()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with _beside() if cores != 1 else nullcontext():
        _run(_guide_thunks(), report)
    warm_apart(report)
    return time.perf_counter() - begin


@contextmanager
def _beside() -> Generator[None]:
    command = [sys.executable, "-c", f"from {__name__} import warm_apart; warm_apart()"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as beside:
        yield
        _, trouble = beside.communicate()
    if beside.returncode:
        raise RuntimeError(f"some kernels could not be compiled:\n{trouble}")


def warm_apart(report: Report = lambda name, seconds: None) -> None:
    """Compile or load the kernels on logits and those of quoting."""
    from ..kernels import warm
    from ..kernels.jit.compiling import keep_quiet

    keep_quiet()
    warm(report)
    _run(_quoting_thunks(), report)


def _run(thunks: Thunks, report: Report) -> None:
    for name, thunk in thunks:
        start = time.perf_counter()
        thunk()
        report(name, time.perf_counter() - start)


def _vocabulary() -> Vocabulary:
    """Bytes, and a longer token, so that a way to the end by single bytes may not be the shortest."""
    from ..tokenizers_adapter import Vocabulary

    single = Vocabulary.from_bytes()
    return Vocabulary([*single.tokens, b"aa"], single.eos_ids)


def _quoting_thunks() -> Thunks:
    """The kernels of quoting, with and without limits."""
    from ..guides import SubstringGuide

    limits: list[dict[str, Any]] = [{}, {"max_chars": 3}]
    vocabulary = _vocabulary()

    def quote(guide: SubstringGuide) -> None:
        state = guide.advance(guide.start, ord("a"))
        guide.mask_within(state, guide.distance(state) + 1)
        guide.places("a b")

    return [("guides: quoting", lambda: [quote(SubstringGuide("a b", vocabulary, **options)) for options in limits])]


def _guide_thunks() -> Thunks:
    """The kernels of guides, by using small guides: counted and plain loops, wide and narrow, closing."""
    from ..guides import AlignedGuide, ChoiceGuide, FreeGuide, GoalGuide, JSONGuide, RegexGuide
    from ..guides.graph.text_tree import text_tree
    from ..guides.healing.crossing import Crossings
    from ..tokenizers_adapter import Vocabulary

    vocabulary = _vocabulary()
    guides: dict[str, RegexGuide] = {}

    def make() -> None:
        for pattern in ('[^"]*"[^"]*"', '([^"]{2,})*"', ".{3,90}", "é[0-9]+"):
            guides[pattern] = RegexGuide(pattern, vocabulary)

    def use(action: Callable[[RegexGuide, int, int], object]) -> Callable[[], None]:
        def run() -> None:
            for guide in guides.values():
                state = guide.start
                for token in 'aaé0"0"'.encode():
                    action(guide, state, token)
                    state = max(guide.advance(state, token), guide.start)

        return run

    pairs = Vocabulary([b"a", b"aa", None], [2])

    def align() -> None:
        guide = AlignedGuide(guides["é[0-9]+"], b"a")
        guide.row(guide.start)
        guide.distance(guide.start)
        Crossings(FreeGuide(pairs)).cut([0])

    def quote_in_json() -> None:
        guide = JSONGuide({"x-quote": "a"}, vocabulary, contexts={"a": "a b"})
        guide.mask(guide.advance(guide.start, ord('"')))

    def write_object() -> None:
        guide = JSONGuide({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}, vocabulary)
        guide.mask(guide.advance(guide.start, ord("{")))

    def write_many_names() -> None:
        names = {f"{number:03}": {"type": "null"} for number in range(100)}
        guide = JSONGuide({"type": "object", "properties": names}, vocabulary)
        guide.mask(guide.advance(guide.start, ord("{")))

    def count() -> None:
        guide = JSONGuide({"minimum": 2}, vocabulary)
        guide.mask(guide.start)

    def join_patterns() -> None:
        JSONGuide({"pattern": "a", "not": {"pattern": "b"}}, vocabulary)

    def write_different_strings() -> None:
        guide = JSONGuide({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, vocabulary)
        for text in (b'["ab","b"]', b'["ab","b"]', b'["b","b'):
            state = guide.start
            for token in text:
                guide.mask(state)
                state = guide.advance(state, token)
        guide.read(guide.read(guide.start, b'["'), b'a"')

    def write_beside() -> None:
        guide = RegexGuide('(?!ab)[^"]*"', vocabulary)
        for state in (guide.read(guide.start, b"c"), guide.start):
            guide.mask(state)

    def make_room(guide: RegexGuide) -> None:
        state, states = guide.read(guide.start, b"a"), [guide.start]
        for token in b'a"a"':
            states.append(guide.advance(states[-1], token))
        for _ in range(2):
            guide.automaton.collect(0)
        for each in (state, *states):
            guide.mask(each)

    return [
        ("guides: texts", lambda: (text_tree([b"aa", b"ab"]), ChoiceGuide(["a"], pairs))),
        ("guides: making", make),
        ("guides: advancing", use(lambda guide, state, token: guide.advance(state, token))),
        ("guides: masks", use(lambda guide, state, token: guide.mask(state))),
        ("guides: masks beside others", write_beside),
        ("guides: distances", use(lambda guide, state, token: guide.fits(state, guide.distance(state)))),
        ("guides: closing", use(lambda guide, state, token: guide.mask_within(state, guide.distance(state) + 1))),
        ("guides: aligning", align),
        ("guides: goals", lambda: GoalGuide(FreeGuide(vocabulary), "ab").mask(0)),
        ("guides: all states", lambda: guides["é[0-9]+"].dfa()),
        ("guides: all masks", lambda: guides["é[0-9]+"].precompile()),
        ("guides: quoting in JSON", quote_in_json),
        ("guides: objects of JSON", write_object),
        ("guides: many names of JSON", write_many_names),
        ("guides: numbers of JSON", count),
        ("guides: patterns of JSON, joined", join_patterns),
        ("guides: strings that differ", write_different_strings),
        ("guides: making room", lambda: make_room(guides['[^"]*"[^"]*"'])),
    ]
