"""Tool calls in the forms of model families: what hundreds of tools cost.

    python benchmarks/forms.py path/to/tokenizer [--tools 1 400 2048] [--save]

CPU time in milliseconds, medians of three, each of tools that no guide was made for before, the vocabulary's tables
being there. "plan": the guide of an answer that must be a call; "first mask"; "needed": the fewest tokens of an answer,
asked for the first time; "reader": reading an answer of 1,000 calls token by token, for each token.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

FORMS = ("hermes", "llama3", "kimi-k2", "harmony", "qwen3-coder", "glm-4.7")


def tools_of(count: int, first: int) -> list[dict[str, Any]]:
    """Tools no two of which have the same parameters."""
    return [
        {
            "type": "function",
            "function": {
                "name": f"get_{number}",
                "parameters": {
                    "type": "object",
                    "properties": {
                        f"name_{number}": {"type": "string"},
                        f"count_{number}": {"type": "integer"},
                        "unit": {"enum": ["celsius", "kelvin"]},
                        "note": {"type": ["string", "null"]},
                    },
                    "required": [f"name_{number}"],
                    "additionalProperties": False,
                },
            },
        }
        for number in range(first, first + count)
    ]


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How much CPU time a call took, and what it returned."""
    begin = time.process_time_ns()
    found = action()
    return (time.process_time_ns() - begin) / 1e6, found


def measure(form: Any, count: int, first: int) -> dict[str, float]:
    """One run of one form with so many tools."""
    from trellm.serve import tool_calls

    tools = tool_calls.tools_of(tools_of(count, first))
    took, plan = milliseconds(lambda: form.plan(tools, tool_calls.choice_of("required", tools)))
    mask, _ = milliseconds(lambda: plan.guide.mask(plan.guide.start))
    needed, _ = milliseconds(lambda: plan.needed)
    return {"plan": took, "first mask": mask, "needed": needed}


def read(form: Any) -> float:
    """Milliseconds for a token of an answer of 1,000 calls in the form of Hermes."""
    from trellm.serve import tool_calls

    tools = tool_calls.tools_of(tools_of(400, 0))
    reader = form.plan(tools, tool_calls.choice_of("auto", tools)).reader()
    call = b'<tool_call>\n{"name": "get_7", "arguments": {"name_7": "some words", "count_7": 12}}\n</tool_call>\n'
    data = call * 1000
    pieces = [data[at : at + 4] for at in range(0, len(data), 4)]
    took, _ = milliseconds(lambda: [reader.feed_bytes(piece) for piece in pieces])
    assert len(reader.message.calls) == 1000
    return took / len(pieces)


def main() -> None:
    """Measure, print, and save if that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("--tools", type=int, nargs="+", default=[1, 400, 2048])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    pin_to_one_core()
    from trellm import Vocabulary
    from trellm.serve import tool_calls
    from trellm.serve.tool_calls.formats import FORMATS

    vocabulary = Vocabulary.from_tokenizer(options.tokenizer)
    rows: list[dict[str, Any]] = []
    first = 10_000
    for name in FORMS:
        form = tool_calls.ToolCallFormat(FORMATS[name], None, vocabulary, thinks=False)
        measure(form, 2, 1_000)  # kernels are loaded, and the vocabulary's tables made
        for count in options.tools:
            runs: list[dict[str, float]] = []
            for _ in range(3):
                runs.append(measure(form, count, first))
                first += count
            medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            rows.append({"form": name, "tools": count, **medians, "reader": read(form) if name == "hermes" else ""})
    show(rows)
    if options.save:
        print(save("forms", rows, ["trellm", "numba", "numpy"], options.tokenizer))


if __name__ == "__main__":
    main()
