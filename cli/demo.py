"""`trellm demo`: examples of constraints with a small model, in seconds and without a download."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ..errors import OptionError
from .models import load_model, threads_option

if TYPE_CHECKING:
    from ..engine.generator import Generator
    from ..engine.models import Model
    from ..engine.results import Generation

PASSAGE = (
    "On 3 March 2021, Brela Stonkard bought 12 units of the copper kettle from Velmor Trading for $1,250.50. "
    "The parcel was sent to Marlhaven. That evening, Brela Stonkard was beaming. The bill has not been paid."
)
"""The text that the small model reads."""

TEXT = """\
Apollo 8 was launched on 1968-12-21 and flew around the Moon. Its crew: Borman, Lovell, Anders. Mood: hopeful.
Apollo 11 was launched on 1969-07-16 and landed on the Moon on 1969-07-20. Its crew: Armstrong, Collins, Aldrin. \
Mood: joyful.
Apollo 12 was launched on 1969-11-14 and landed on the Moon on 1969-11-19. Its crew: Conrad, Gordon, Bean. \
Mood: joyful.
Apollo 13 was launched on 1970-04-11 and did not land on the Moon. Its crew: Lovell, Swigert, Haise. Mood: tense.
Apollo 17 was launched on 1972-12-07 and landed on the Moon on 1972-12-11. Its crew: Cernan, Evans, Schmitt. \
Mood: proud.
"""
"""The text of a gzip language model, which needs no weights: `models.ziplm(TEXT)`."""


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_STRING, _DATE = {"type": "string"}, {"type": "string", "format": "date"}
ORDER = _object_schema(
    {
        **{"buyer": _STRING, "product": _STRING, "count": {"type": "integer"}, "price": {"type": "number"}},
        **{"order_date": _DATE, "paid": {"type": "boolean"}},
    }
)
MOODS = ["angry", "calm", "joyful", "sad", "tired"]
TOOLS = [
    {"name": "book_trip", "parameters": _object_schema({"destination": _STRING, "date": _DATE})},
    {"name": "get_weather", "parameters": _object_schema({"city": _STRING, "date": _DATE})},
    {"name": "send_message", "parameters": _object_schema({"to": _STRING})},
]
CALL = {
    "anyOf": [_object_schema({"name": {"const": tool["name"]}, "arguments": tool["parameters"]}) for tool in TOOLS],
}
WORDS = ["rainy", "Marlhaven"]


@dataclass(frozen=True)
class Example:
    """A prompt, with its constraint as source code and as a function.

    options: of the call; show: formats the result, by default its value
    """

    title: str
    prompt: str | list[dict[str, str]]
    code: str
    make: Callable[[Model], Generator[Any]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    show: Callable[[Any], str] = lambda result: repr(result.value)


def examples() -> list[Example]:
    """Return the examples of the demo."""
    return [*_passage_examples(), *_prompt_examples()]


def _passage_examples() -> list[Example]:
    """Return the examples about the passage."""
    from .. import Beam, generate

    fields = "buyer (string), product (string), count (integer), price (number), order_date (date), paid (boolean)"
    return [
        Example(
            "a record of the passage",
            f"{PASSAGE}\n\nExtract the data from this text as JSON.\nFields: {fields}\nJSON:\n",
            "generate.json(model, ORDER)",
            lambda model: generate.json(model, ORDER),
        ),
        Example(
            "a quotation, and where it stands",
            f"{PASSAGE}\n\nWho bought the copper kettle? Quote the text.\nAnswer: ",
            "generate.extract(model, PASSAGE)",
            lambda model: generate.extract(model, PASSAGE),
            show=_underline,
        ),
        Example(
            "a choice, and how likely each is",
            f"{PASSAGE}\n\nWhat is the mood of the text? Choose one: {', '.join(MOODS)}.\nAnswer: ",
            "generate.choice(model, MOODS)",
            lambda model: generate.choice(model, MOODS),
            {"search": Beam(len(MOODS), length_penalty=0.0, n=len(MOODS))},
            _shares,
        ),
        Example(
            "a date in its normal form",
            f"{PASSAGE}\n\nWhen was the order placed? Write the date as YYYY-MM-DD.\nAnswer:\n",
            r'generate.regex(model, r"\d{4}-\d{2}-\d{2}")',
            lambda model: generate.regex(model, r"\d{4}-\d{2}-\d{2}"),
        ),
    ]


def _prompt_examples() -> list[Example]:
    """Return the examples without the passage."""
    from .. import generate

    return [
        Example(
            "a call of one of three tools",
            [{"role": "user", "content": "Will it rain in Oakwick on June 10, 2024?"}],
            "generate.json(model, CALL)",
            lambda model: generate.json(model, CALL),
            {"tools": TOOLS},
        ),
        Example(
            "a number after a thought",
            "What is 47 + 38?\n",
            r'generate.regex(model, r"\d{1,4}", after="</think>", thinking=60)',
            lambda model: generate.regex(model, r"\d{1,4}", after="</think>", thinking=60),
        ),
        Example(
            "a sentence in which given words stand",
            f"Write a sentence with the words {', '.join(WORDS)}\nAnswer:\n",
            'generate.regex(model, r"[A-Z][a-z A-Z]{0,60}\\.")',
            lambda model: generate.regex(model, r"[A-Z][a-z A-Z]{0,60}\."),
            {"include": WORDS, "max_tokens": 40},
        ),
        Example(
            "a prompt that ends inside a word, healed",
            "The seat has been booked in adv",
            "generate.text(model)",
            generate.text,
            {"max_tokens": 8, "stop": "."},
        ),
        Example(
            "the same without healing",
            "The seat has been booked in adv",
            "generate.text(model)",
            generate.text,
            {"max_tokens": 8, "stop": ".", "heal": False},
        ),
        Example("free text", "The weather of Marlhaven", "generate.text(model)", generate.text, {"max_tokens": 48}),
    ]


@click.command()
@threads_option
@click.option(
    "--model", "-m", "name", help="A model as in `trellm generate`, such as smollm2. [default: the small one]"
)
def demo(name: str | None) -> None:
    """Show constrained generation with the small model in the package: prompt, constraint, output. Offline, in seconds.

    The model has 3.6 million parameters. It reads short English passages, and knows nothing of the world.
    """
    from ..kernels.jit.compiling import compile_seconds

    def since(began: float, compiled: float) -> str:
        """Format the seconds since a time. The one-time compilation of kernels is listed separately."""
        compile_time = compile_seconds() - compiled
        note = f", and {compile_time:.1f} s once, to compile kernels" if compile_time >= 0.05 else ""
        return f"{time.perf_counter() - began - compile_time:.2f} s{note}"

    begin = time.perf_counter(), compile_seconds()
    model = load_model(name)
    click.echo(f"{model!r}, loaded in {since(*begin)}\n")
    for example in examples():
        generator = example.make(model)
        begin = time.perf_counter(), compile_seconds()
        try:
            output = example.show(generator.run(example.prompt, **example.options))
        except OptionError as error:  # some chat templates ignore tools
            output = f"refused: {error}"
        duration = since(*begin)
        options = "".join(f", {name}={_brief(value)}" for name, value in example.options.items())
        click.secho(example.title, bold=True)
        click.echo(f"  prompt      {example.prompt!r}")
        click.echo(f"  constraint  {example.code}(prompt{options})")
        click.echo(f"  output      {output}")
        click.echo(f"  time        {duration}\n")
    click.echo("Next: trellm generate --help, with a model of your own.")


def _brief(option: Any) -> str:
    """Format an option as source code."""
    from .. import Beam

    if option is TOOLS:
        return "TOOLS"
    return f"Beam({option.width}, n={option.n})" if isinstance(option, Beam) else repr(option)


def _underline(result: Generation[Any]) -> str:
    """Return the span in its passage, underlined if the terminal can."""
    span = result.value
    marked = click.style(PASSAGE[span.start : span.end], underline=True)
    return (
        f"{span.text!r}, characters {span.start} to {span.end} of: {PASSAGE[: span.start]}{marked}{PASSAGE[span.end :]}"
    )


def _shares(results: list[Generation[Any]]) -> str:
    """Return each choice with its share of their total probability."""
    weights = [math.exp(result.score or 0.0) for result in results]
    shares = [f"{result.value} {weight / sum(weights):.1%}" for result, weight in zip(results, weights, strict=True)]
    return ", ".join(shares)
