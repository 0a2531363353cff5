"""Translation of Python options in errors to flags, and parameter types of flags."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, ClassVar, TypeVar

import click

from ..checks import lone_surrogate
from ..sampling import BEAM_OPTIONS, SAMPLE_OPTIONS

Command = TypeVar("Command", bound=Callable[..., Any])


def flag_of(name: str) -> str:
    """Return the flag of a Python option of the same name."""
    return f"--{name.replace('_', '-')}"


_FLAGS = {
    name: flag_of(name)
    for name in (
        *("max_tokens", "min_tokens", "no_repeat_ngram_size", "repetition_penalty", "frequency_penalty"),
        *("presence_penalty", "logit_bias", "batch_size", "early_stopping", "none_text"),
        *BEAM_OPTIONS,
        *(name for name in SAMPLE_OPTIONS if "_" in name),
    )
} | {"max_states": "--limit"}
"""Flags by option names that are not English words. They are replaced anywhere."""
_FLAGS_BEFORE_VALUES = {
    name: flag_of(name)
    for name in (
        *("parallel", "attempts", "particles", "ess", "resampling", "seed", "stop", "include", "draft", "after"),
        *("thinking", "model", "memory", "device", "dtype", "weights", "kv_cache_dtype", "order", "whitespace"),
        *("escapes", "spelling", "unenforced", "boundary", "dialect", "flags", "start", "syntax", "resources"),
        *(name for name in SAMPLE_OPTIONS if "_" not in name),
    )
} | {
    "width": "--beams",
    "n": "-n",
    "heal": "--no-heal, in Python heal",
    "logprobs": "--top-logprobs",
    "adapters": "--lora-modules",
    "contexts": "--context",
}
"""Flags by option names that are only replaced before a value."""
_PHRASES = {
    "work= of its limits=Limits(...)": "--max-work",
    "memory= of its limits=Limits(...)": "--max-memory",
    "seconds= of its limits=Limits(...)": "--max-seconds",
    "states= of its limits=Limits(...)": "--max-memory",
    "; for no randomness use Greedy()": "; for no randomness leave it out",
    "use search=Sample(...) for them, or see log_weight, ess and distance": "--temperature draws texts that have them",
    "; the weight of a whole text is its log_weight": ", but the search samples whole texts",
    "; let SMC(..., accepts=...) refuse texts": "",
    "diagnostics=True": "--diagnose",
    "logprobs=True": "--logprobs",
    "tools= needs": "--tools needs",
    "documents= needs": "--documents needs",
    "tools=: the": "--tools: the",
    "documents=: the": "--documents: the",
    "in `resources={uri: schema}`": "as --resources [URI=]FILE",
}
_SEARCH = re.compile(r"search=(Exact|SMC|Importance)\([^()]*\)")
_NAME = re.compile(rf"\b({'|'.join(_FLAGS)})\b(=)?|\b({'|'.join(_FLAGS_BEFORE_VALUES)})=(?=[^=\s])")


def in_flags(message: str) -> str:
    """Replace Python options in an error's message by flags."""
    for phrase, replacement in _PHRASES.items():
        message = message.replace(phrase, replacement)
    return _NAME.sub(_flag, _SEARCH.sub(lambda found: f"--search {found[1].lower()}", message))


def _flag(match: re.Match[str]) -> str:
    if match[3]:
        return f"{_FLAGS_BEFORE_VALUES[match[3]]} "
    return f"{_FLAGS[match[1]]} " if match[2] else _FLAGS[match[1]]


def with_options(command: Command, options: Sequence[Callable[[Any], Any]]) -> Command:
    """Add options to a command, listed first in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def grouped(kind: type[Any], name: str, options: Sequence[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    """Return a decorator that passes options to a subcommand as one value.

    kind: a dataclass of these options, and of others if the subcommand has them
    """

    def decorate(function: Any) -> Any:
        @wraps(function)
        def command(*args: Any, **others: Any) -> Any:
            value = kind(**{each.name: others.pop(each.name) for each in fields(kind) if each.name in others})
            return function(*args, **{name: value}, **others)

        return with_options(command, options)

    return decorate


class NumberType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A finite number, at least `least`, or above it."""

    name = "number"

    def __init__(self, least: float = -math.inf, most: float = math.inf, *, above: bool = False) -> None:
        self._least = least
        self._most = most
        self._above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        fits = math.isfinite(number) and self._least <= number <= self._most
        if not fits or (self._above and number == self._least):
            self.fail(f"{value!r}: expected {self._bounds()}", param, ctx)
        return number

    def _bounds(self) -> str:
        words = "a number"
        if self._least > -math.inf:
            words += f" above {self._least:g}" if self._above else f" from {self._least:g}"
        return f"{words} up to {self._most:g}" if self._most < math.inf else words


class BiasType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A token with its bias: an id, a text, or a JSON string for a text with unusual ends."""

    name = "bias"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | str, float]:
        """Parse a token and a number."""
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        token, equals, bias = value.rpartition("=")
        try:
            number = float(bias)
        except ValueError:
            number = math.nan
        if not equals or not token or math.isnan(number):
            self.fail(f"{value!r}: expected TOKEN=NUMBER, such as 13=-5 or '\" the\"=-inf'", param, ctx)
        if token.isascii() and token.isdigit():
            return int(token), number
        if not token.startswith('"'):
            return TextType().convert(token, param, ctx), number
        try:
            text = json.loads(token)
        except ValueError as error:
            self.fail(f"{token!r} is no JSON string: {error}", param, ctx)
        return TextType().convert(text, param, ctx), number


class WhitespaceType(click.Choice):  # pyright: ignore[reportMissingTypeArgument]
    """A kind of white space by name, or the greatest number of blanks."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a name or a number."""
        if str(value).isdecimal() and len(str(value)) < 5:
            return int(value)
        return super().convert(value, param, ctx)  # pyright: ignore[reportUnknownVariableType]


class TextType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A text that UTF-8 can encode, which arguments of a terminal need not be."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a text."""
        text = str(value)
        if (place := lone_surrogate(text)) >= 0:
            self.fail(f"{text!r}: what is at character {place} is not UTF-8", param, ctx)
        return text


class SizeType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """An amount of memory in bytes, such as 500MB or 2GiB."""

    name = "SIZE"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    _UNITS: ClassVar[dict[str, int]] = {
        "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40,
    }  # fmt: skip

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse an amount of memory."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]I?)?B?", value.upper())
        size = 0 if found is None else int(float(found[1]) * self._UNITS[found[2] or ""])
        if found is None or size < self._least:
            self.fail(f"{value!r} is not an amount of memory; write it as 500MB or 2GiB", param, ctx)
        return size
