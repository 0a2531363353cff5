"""The blog's example step by step: "The dog is fast" by beams with banks, from a table of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from trellm import Beam, Generator, Vocabulary, generate, models

from ..support import BeamGroup, BeamHypothesis, Call, EngineCore, Options, SchedulerConfig, requests_of, round_robin

WORDS = ["The", " dog", " nice", " car", " is", " fast", " and", " slow", " mad", " runs", " barks"]
END = len(WORDS)
AFTER: dict[str, dict[str, float]] = {
    "The": {" dog": 0.45, " nice": 0.35, " car": 0.19, " is": 0.01},
    " dog": {" and": 0.5, " runs": 0.3, " is": 0.2},
    " nice": {" car": 0.6, " dog": 0.39, " is": 0.01},
    " car": {" runs": 0.7, " is": 0.3},
    " is": {" slow": 0.4, " fast": 0.3, " mad": 0.3},
    " and": {" barks": 0.5, " runs": 0.4, " is": 0.1},
}


def table(ids: Sequence[int]) -> list[float]:
    """The logits after a word; after most the text goes on with " and" or ends."""
    after = AFTER.get(WORDS[ids[-1]], {" and": 0.6})
    rest = 1 - sum(after.values())
    return [float(np.log(max(after.get(word, 0), 1e-9))) for word in WORDS] + [float(np.log(max(rest, 1e-9)))]


MODEL = models.from_function(table, Vocabulary.from_characters(WORDS))


def beams(loop: EngineCore) -> dict[str, tuple[int, float]]:
    """What each beam says, its bank and its probability."""
    group = loop.calls[0].groups[0].work
    assert isinstance(group, BeamGroup)
    return {
        "The" + beam.text.decode(): (progress_of(group, beam), round(float(np.exp(beam.total)), 4))
        for beam in group.beams
    }


def progress_of(group: BeamGroup, beam: BeamHypothesis) -> int:
    assert group.request.start.guide_cache is not None
    return group.request.start.guide_cache.progress(beam.state)


def loop_of(generator: Generator, options: Options) -> EngineCore:
    loop = EngineCore(generator.model, 0, SchedulerConfig())
    requests = requests_of(generator.model, [generator.job("The", options)], options)
    loop.calls.append(Call(requests, options.batch_size))
    return loop


def test_the_blogs_example_step_by_step() -> None:
    options = Options(include=["is fast"], search=Beam(3), max_tokens=6)
    loop = loop_of(generate.text(MODEL), options)
    loop.step()
    assert beams(loop) == {"The is": (1, 0.01), "The dog": (0, 0.45), "The nice": (0, 0.35)}
    loop.step()
    assert beams(loop) == {"The is fast": (2, 0.003), "The dog is": (1, 0.09), "The dog and": (0, 0.225)}
    loop.step()
    # "The dog is slow" breaks the phrase and is in bank 0 again; "The is fast and" is the last one of bank 2.
    assert beams(loop) == {
        "The dog is fast": (2, 0.027), "The dog and is": (1, 0.0225), "The dog and barks": (0, 0.1125)}  # fmt: skip


def test_what_comes_of_it() -> None:
    found = generate.text(MODEL).run("The", include=["is fast"], search=Beam(3), max_tokens=3)
    assert (found.text, found.unmet, found.finish_reason) == (" dog is fast", (), "length")
    assert generate.text(MODEL)("The", search=Beam(3), max_tokens=3) != found.text


@pytest.mark.parametrize(
    ("progress", "count", "picked"),
    [
        ([0, 0, 1, 0, 2, 1], 3, [4, 2, 0]),
        ([0, 0, 1, 0, 2, 1], 9, [4, 2, 0, 5, 1, 3]),
        ([0, 0, 0], 2, [0, 1]),
        ([3, 1], 1, [0]),
        ([], 4, []),
    ],
)
def test_the_picks(progress: list[int], count: int, picked: list[int]) -> None:
    assert round_robin(progress, count) == picked


def test_picks_take_turns() -> None:
    random = Random(5)
    for _ in range(200):
        progress = [random.randrange(4) for _ in range(random.randrange(12))]
        picked = round_robin(progress, random.randrange(1, 9))
        for bank in set(progress):
            places = [place for place in picked if progress[place] == bank]
            left = progress.count(bank) - len(places)
            assert places == sorted(places), "the best of a bank come first"
            for fuller in range(bank + 1, 4):
                others = sum(progress[place] == fuller for place in picked)
                assert others >= len(places) or others == progress.count(fuller), "a fuller bank comes first"
                assert left == 0 or others <= len(places) + 1, "and waits for its turn"
