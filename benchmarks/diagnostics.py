"""What diagnostics cost: a step with them beside the same step without, with a vocabulary of 128k tokens.

    python benchmarks/diagnostics.py TOKENIZER [--layers 4 --hidden 256 --rounds 5]

The model is a random Llama with the tokenizer's whole vocabulary. The runs take turns on one core with one thread; the
constraint of a step is one that never leaves a single token, so that all runs have equally many forward passes. Times
are of the processor, which other work on the machine changes less.

step: ms for a further token, from runs of two lengths, so that prompts and start-up drop out
    off             without diagnostics, and once more: what differs between the two is noise
    on, logprobs    with diagnostics, and with log-probabilities only
    share           how much of the run with diagnostics was spent on recording, measured inside it
flags: what is left of diagnostics when they are off: the tests of two attributes in each step
words: ms for the words of all steps, a page and a table of a text, which are made when somebody asks for them
"""

from __future__ import annotations

import argparse
import statistics
import time
import timeit
from collections.abc import Callable
from functools import wraps
from typing import Any

from decode_loop import PROMPT, make_model
from recording import pin_to_one_core, save, show

SHORT, LONG = 8, 32
WIDE = r"([A-Za-z ,.]|\n)*§"
RUNS: dict[str, dict[str, Any]] = {
    "off": {},
    "off, once more": {},
    "logprobs": {"logprobs": True},
    "on": {"diagnostics": True},
}
JSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}


def timed(action: Callable[[], Any]) -> float:
    """Seconds of the processor."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


class Recorded:
    """Sums up the time spent inside a method."""

    def __init__(self, owner: type, name: str) -> None:
        self.seconds = 0.0
        inner = getattr(owner, name)

        @wraps(inner)
        def outer(*arguments: Any) -> Any:
            begin = time.process_time()
            answer = inner(*arguments)
            self.seconds += time.process_time() - begin
            return answer

        setattr(owner, name, outer)


def steps(model: Any, rounds: int) -> list[dict[str, Any]]:
    """Steps of several searches and batch sizes."""
    from trellm import Beam, Sample, generate
    from trellm.engine.decode.beam_search import BeamSearch
    from trellm.engine.decode.sampler import Sampler

    recorded = [Recorded(Sampler, "_score"), Recorded(BeamSearch, "_with_logprobs")]
    generators = {"free": generate.text(model), "constrained": generate.regex(model, WIDE)}
    searches: list[tuple[str, int, dict[str, Any]]] = [
        ("greedy", 1, {}),
        ("greedy", 8, {}),
        ("sample", 1, {"search": Sample(), "seed": 1}),
        ("beam of 4", 1, {"search": Beam(4)}),
    ]
    found: list[dict[str, Any]] = []
    for search, batch, common in searches:
        for name, generator in generators.items():

            def run(
                tokens: int, more: dict[str, Any], generator: Any = generator, common: Any = common, batch: int = batch
            ) -> float:
                prompts = [PROMPT] * batch
                return timed(lambda: generator.run(prompts, max_tokens=tokens, batch_size=8, **common, **more))

            found += rows_of(f"{name}, {search}", batch, run, recorded, rounds)
    return found


def rows_of(
    what: str, batch: int, run: Callable[..., float], recorded: list[Recorded], rounds: int
) -> list[dict[str, Any]]:
    """A row for each run: medians over rounds, in which the runs take turns."""
    times: dict[str, list[float]] = {name: [] for name in RUNS}
    shares: list[float] = []
    for number in range(rounds + 1):
        for name, options in RUNS.items():
            short, before = run(SHORT, options), sum(part.seconds for part in recorded)
            long = run(LONG, options)
            if number:  # the first round is for warming up
                times[name].append(1e3 * (long - short) / (LONG - SHORT))
                if name == "on":
                    shares.append((sum(part.seconds for part in recorded) - before) / long)
    rows = [
        {
            "measured": "step",
            "what": what,
            "batch": batch,
            "diagnostics": name,
            "ms": statistics.median(values),
            # Each round's ratio first: the machine's speed changes from round to round.
            "/ off": statistics.median(map(float.__truediv__, values, times["off"])),
            "share": statistics.median(shares) if name == "on" else None,
        }
        for name, values in times.items()
    ]
    show(rows)
    return rows


def flags(step: float) -> dict[str, Any]:
    """The tests that are left when diagnostics are off, against a step of so many ms."""
    loop = type("Loop", (), {"scores": False, "diagnostics": False})()
    count = 1_000_000
    test = 1e3 * timeit.timeit("loop.scores; loop.diagnostics", globals={"loop": loop}, number=count) / count
    return {"measured": "flags", "what": "two attributes", "ms": test, "share": test / step}


def words(model: Any) -> list[dict[str, Any]]:
    """What is made afterwards, of a text in JSON."""
    from trellm import generate

    json = generate.json(model, JSON)
    str(json.run(PROMPT, max_tokens=60, diagnostics=True).diagnostics)
    found = json.run(PROMPT + " ", max_tokens=60, diagnostics=True).diagnostics
    asked = 1e3 * timed(lambda: [step.expected for step in found])
    page = 1e3 * timed(found.to_html)
    table = 1e3 * timed(lambda: str(found))
    named = (("words", asked), ("page", page), ("table", table))
    return [{"measured": "words", "what": name, "tokens": len(found), "ms": took} for name, took in named]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer
    from trellm import models

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    model = models.transformers(make_model(tokenizer, options.layers, options.hidden), tokenizer)
    rows = steps(model, options.rounds)
    rows.append(flags(rows[0]["ms"]))
    rows += words(model)
    show(rows[-4:])
    save("diagnostics", rows, ["trellm", "torch", "transformers"], options.tokenizer)


if __name__ == "__main__":
    main()
