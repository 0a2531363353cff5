"""Every error that trellm raises on purpose.

TrellmError                     catch this for all of them
├── OptionError                 an argument or option that cannot be used
│   ├── BudgetError             max_tokens is smaller than the shortest complete output
│   └── MediaError              an image or audio that the model does not read; has its digest
├── TextSyntaxError             a constraint whose text cannot be read; has the offset, draws a caret
│   ├── PatternError            a regular expression
│   └── GrammarError            a grammar
├── SchemaError                 a JSON Schema; has the JSON pointer
├── LimitError                  a constraint larger than a limit; names the option that raises it, has a pointer
├── Cancelled                   a call that another thread stopped
├── StateError                  a number that names no state of the guide it was given to
├── LanguageError               a language that has no text, or none that the vocabulary can spell
├── VocabularyError             a tokenizer whose tokens cannot be turned into bytes, or that lacks EOS
├── GuideFileError              a saved guide that is damaged or was made for something else
├── ConversionError             an output that its type refuses; has the results of all prompts
├── SamplingError               a search that found no text of the right distribution; has the estimate of their mass
└── ModelError                  a model that returned something unusable (NaN, wrong shape), is damaged, or is not there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TrellmError(Exception):
    """Base of all errors raised on purpose: a user's mistake, or a model's."""


class TrellmWarning(UserWarning):
    """A likely mistake of the user's that can be run nevertheless."""


class OptionError(TrellmError, ValueError):
    """An argument or option that cannot be used; the message says which are possible."""


class BudgetError(OptionError):
    """`max_tokens` is smaller than the shortest complete output. `needed` tokens would do."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.needed)


class MediaError(OptionError):
    """An image or audio that the model does not read, such as audio that is too short for it.

    `kind` is "image" or "audio", `digest` that of the `Image` or `Audio`.
    """

    def __init__(self, message: str, kind: str, digest: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.digest = digest

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.kind, self.digest)


class TextSyntaxError(TrellmError, ValueError):
    """A constraint whose text cannot be read.

    `text` is the whole source, `offset` the index of the character at fault (`len(text)` at its end);
    the message ends with the line at fault and a caret under that character.
    """

    def __init__(self, reason: str, text: str, offset: int) -> None:
        self.reason = reason
        self.text = text
        self.offset = offset
        self.line = text.count("\n", 0, offset) + 1
        self.column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        super().__init__(f"{reason}\n{self._excerpt()}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.text, self.offset)

    def _excerpt(self) -> str:
        begin = self.text.rfind("\n", 0, self.offset) + 1
        end = self.text.find("\n", self.offset)
        line = self.text[begin : len(self.text) if end < 0 else end]
        at = self.offset - begin
        first = max(0, at - 60)
        shown = line[first : at + 40].replace("\t", " ")
        where = f"line {self.line}, column {self.column}" if "\n" in self.text else f"offset {self.offset}"
        return f"  at {where}:\n  {shown}\n  {' ' * (at - first)}^"


class PatternError(TextSyntaxError):
    """A regular expression that is malformed, or uses a construct that is not regular."""


class GrammarError(TextSyntaxError):
    """A grammar that is malformed, or that uses an unsupported directive."""


class SchemaError(TrellmError, ValueError):
    """A JSON Schema that is not one, has no instance, or asks for what cannot be enforced exactly.

    `pointer` is the JSON pointer of the keyword at fault, as a fragment (`#/properties/a/minimum`).
    """

    def __init__(self, reason: str, pointer: str) -> None:
        super().__init__(f"{reason} (at {pointer})")
        self.reason = reason
        self.pointer = pointer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.pointer)


class AudioError(TrellmError, ValueError):
    """Audio that cannot be read: damaged, of a format that is not known, or longer than a limit allows."""


class ImageError(TrellmError, ValueError):
    """An image that cannot be read: damaged, of a format that is not known, or larger than a limit allows."""


class LimitError(TrellmError):
    """A constraint larger than a limit allows; the message names the limit and the option that raises it.

    `pointer` is the JSON pointer of the part of a JSON Schema that is too large, as a fragment (`#/properties/a`): of
    what the schema takes in all, such as its work, the part that was looked at when it was too much. None where that
    is not known, and of other constraints.
    """

    def __init__(self, reason: str, pointer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer: str | None = None
        if pointer is not None:
            self.locate(pointer)

    def locate(self, pointer: str) -> None:
        """Say where it is; what is known already stays, as that is the innermost place."""
        if self.pointer is None:
            self.pointer = pointer
            self.args = (f"{self.reason} (at {pointer})",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.pointer)


class Cancelled(TrellmError):  # noqa: N818
    """A call that another thread stopped, see `Cancellation`; what it worked on is as it was before."""


class StateError(TrellmError, ValueError):
    """A number that names no state of the guide it was given to: states are those that the guide itself gave out."""


class LanguageError(TrellmError, ValueError):
    """A constraint that no text meets, or none that the vocabulary's tokens can spell."""


class VocabularyError(TrellmError, ValueError):
    """A tokenizer that cannot be turned into exact token bytes, or that lacks what is asked of it."""


class GuideFileError(TrellmError):
    """A saved guide that is damaged, or that belongs to another pattern, dialect or vocabulary."""


class ConversionError(TrellmError, ValueError):
    """An output that is what was asked for, and of which its value could not be made: a validator of a type refused it.

    results: what `run` would have returned, a `Generation` for every prompt; those at fault have an `error`
    prompt: the number of the first prompt at fault; text: its output. `__cause__` is what was raised.
    """

    def __init__(self, message: str, results: Sequence[Any], prompt: int, text: str) -> None:
        super().__init__(message)
        self.results = list(results)
        self.prompt = prompt
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.results, self.prompt, self.text)


class SamplingError(TrellmError):
    """A search for texts of the right distribution that found none, or too few.

    log_z: an estimate of the logarithm of the probability that the model writes a text of the constraint
    finished: of an error in the midst of a call, the results that were there, see `Interrupted`
    """

    finished: list[Any]

    def __init__(self, message: str, log_z: float) -> None:
        super().__init__(message)
        self.log_z = log_z

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.log_z)


class ModelError(TrellmError, RuntimeError):
    """A model that returned something unusable; the message names the step and the prompt.

    Also one whose file is damaged, that has not been pulled, or that cannot be; the message says what to do.

    finished: of an error in the midst of a call, the results that were there, see `Interrupted`
    """

    finished: list[Any]
