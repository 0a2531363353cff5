"""All exceptions that trellm raises deliberately.

TrellmError                     base class of all
├── OptionError                 an argument or option that cannot be used
│   ├── BudgetError             max_tokens is smaller than the shortest complete output
│   └── MediaError              an image or audio that the model does not read; has its digest
├── TextSyntaxError             a constraint whose text cannot be parsed; has the offset, draws a caret
│   ├── PatternError            a regular expression
│   └── GrammarError            a grammar
├── SchemaError                 a JSON Schema; has the JSON pointer
├── AudioError                  audio that cannot be read
├── ImageError                  an image that cannot be read
├── LimitError                  a constraint larger than a limit; names the option that raises it, has a pointer
├── Cancelled                   a call that another thread stopped
├── StateError                  a number that is not a state of the guide
├── LanguageError               a language without any text, or without one that the vocabulary can spell
├── VocabularyError             a tokenizer whose tokens cannot be turned into bytes, or that lacks EOS
├── GuideFileError              a saved guide that is damaged, or belongs to something else
├── ConversionError             an output that its type refuses; has the results of all prompts
├── SamplingError               a search that found no text of the right distribution; has the estimate of their mass
└── ModelError                  a model that returned something unusable (NaN, wrong shape), is damaged, or is missing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TrellmError(Exception):
    """Base of all errors raised deliberately: a user's mistake, or a model's."""


class TrellmWarning(UserWarning):
    """A likely mistake of the user that does not prevent the call."""


class OptionError(TrellmError, ValueError):
    """An argument or option that cannot be used; the message says which are possible."""


class BudgetError(OptionError):
    """`max_tokens` is smaller than the shortest complete output, which has `needed` tokens."""

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
    """A constraint whose text cannot be parsed.

    `text` is the whole source, `offset` the index of the character at fault (`len(text)` at the end);
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
    """A JSON Schema that is invalid, has no instance, or has keywords that cannot be enforced exactly.

    `pointer` is the JSON pointer of the keyword at fault, as a fragment (`#/properties/a/minimum`).
    """

    def __init__(self, reason: str, pointer: str) -> None:
        super().__init__(f"{reason} (at {pointer})")
        self.reason = reason
        self.pointer = pointer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.pointer)


class AudioError(TrellmError, ValueError):
    """Audio that cannot be read: damaged, of an unknown format, or longer than a limit allows."""


class ImageError(TrellmError, ValueError):
    """An image that cannot be read: damaged, of an unknown format, or larger than a limit allows."""


class LimitError(TrellmError):
    """A constraint larger than a limit allows; the message names the limit and the option that raises it.

    `pointer` is the JSON pointer of the part of a JSON Schema that is too large, as a fragment (`#/properties/a`). For
    limits of the whole schema, such as work, it is the part in progress at the limit. None if unknown, and for other
    constraints.
    """

    def __init__(self, reason: str, pointer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer: str | None = None
        if pointer is not None:
            self.locate(pointer)

    def locate(self, pointer: str) -> None:
        """Set the pointer, unless it is known: the first one is the innermost."""
        if self.pointer is None:
            self.pointer = pointer
            self.args = (f"{self.reason} (at {pointer})",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.pointer)


class Cancelled(TrellmError):  # noqa: N818
    """A call that another thread stopped, see `Cancellation`; its objects are unchanged."""


class StateError(TrellmError, ValueError):
    """A number that is not a state of the guide: states come from the guide's own methods."""


class LanguageError(TrellmError, ValueError):
    """A constraint that no text meets, or none that the vocabulary's tokens can spell."""


class VocabularyError(TrellmError, ValueError):
    """A tokenizer that cannot be turned into exact token bytes, or that lacks a required part."""


class GuideFileError(TrellmError):
    """A saved guide that is damaged, or that belongs to another pattern, dialect or vocabulary."""


class ConversionError(TrellmError, ValueError):
    """An output that satisfies its constraint, but whose value a validator of the type refused.

    results: those that `run` would have returned, a `Generation` for every prompt; failed ones have an `error`
    prompt: the number of the first failed prompt; text: its output. `__cause__` is the original exception.
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
    finished: results before an error within a call, see `Interrupted`
    """

    finished: list[Any]

    def __init__(self, message: str, log_z: float) -> None:
        super().__init__(message)
        self.log_z = log_z

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.log_z)


class ModelError(TrellmError, RuntimeError):
    """A model that returned something unusable; the message names the step and the prompt.

    Also a model whose file is damaged, not pulled, or cannot be pulled; the message says what to do.

    finished: results before an error within a call, see `Interrupted`
    """

    finished: list[Any]
