"""`trellm demo`: constrained generation in seconds, without a download."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..engine.generator import Generator
    from ..engine.models import Model

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


@dataclass(frozen=True)
class Example:
    """A prompt, and the constraint as a user would write it and as it is made."""

    prompt: str
    written: str
    make: Callable[[Model], Generator[Any]]
    max_tokens: int | None = None


def examples() -> list[Example]:
    """What the demo shows."""
    from .. import generate

    moods = ["hopeful", "joyful", "proud", "tense"]
    return [
        Example("Apollo 11 was ", "generate.text(model)", generate.text, 24),
        Example(
            "Apollo 11 landed on the Moon on ",
            r'generate.regex(model, r"\d{4}-\d{2}-\d{2}")',
            lambda model: generate.regex(model, r"\d{4}-\d{2}-\d{2}"),
        ),
        Example(
            "Lovell, Swigert, Haise. Mood: ",
            f"generate.choice(model, {moods})",
            lambda model: generate.choice(model, moods),
        ),
        Example(
            "Apollo 11 landed on the Moon on ",
            "generate.format(model, datetime.date)",
            lambda model: generate.format(model, datetime.date),
        ),
        Example(
            "Apollo 17 was launched on ",
            "generate.format(model, int)",
            lambda model: generate.format(model, int),
            4,
        ),
    ]


@click.command()
def demo() -> None:
    """Show constrained generation with a toy model: prompt, constraint, output. Offline, in seconds.

    The model is the gzip language model over a few sentences: what compresses well is likely. It is a very
    poor model, and yet what it says under a constraint is what was asked for.
    """
    from .. import models

    model = models.ziplm(TEXT)
    click.echo("A gzip language model that has read five sentences about Apollo missions:\n")
    for example in examples():
        value: Any = example.make(model)(example.prompt, max_tokens=example.max_tokens)
        click.echo(f"  prompt      {example.prompt!r}")
        click.echo(f"  constraint  {example.written}")
        click.echo(f"  output      {value!r}\n")
    click.echo("Next: trellm generate --help, with a model of your own.")
