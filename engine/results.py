"""Results of generation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ..checks import brief
from ..errors import ConversionError, TrellmError
from .models.media.rows import counts_of, row_id
from .models.protocol import BEGIN, words_behind
from .prompts.arguments import Prompt
from .search import FinishReason

if TYPE_CHECKING:
    from ..guides.protocol import Capture
    from ..guides.quoting.source import Span
    from ..tokenizers_adapter import Vocabulary
    from .decode.sequence import SequenceState
    from .diagnostics import Diagnostics
    from .search import SearchTrace

T_co = TypeVar("T_co", covariant=True)

_SHOWN = 200


class TokenLogprob(NamedTuple):
    """A candidate token.

    token: its bytes, None for tokens without bytes such as EOS; logprob: the natural logarithm of its probability
    """

    token_id: int
    token: bytes | None
    logprob: float


class PromptToken(NamedTuple):
    """A token of a prompt, with its probability after the tokens before it. The first token has none.

    rank: 1 + number of more probable tokens; top_logprobs: the most probable tokens at its place, best first, if
        requested
    """

    token_id: int
    token: bytes | None
    logprob: float | None
    rank: int | None
    top_logprobs: tuple[TokenLogprob, ...]

    @classmethod
    def several_of(cls, sequence: SequenceState, vocabulary: Vocabulary) -> tuple[PromptToken, ...] | None:
        """Return the scored tokens of a prompt; None unless requested."""
        if sequence.request.prompt_best is None:
            return None
        tokens, ids = vocabulary.tokens, [token for token in sequence.request.start.prompt if token > BEGIN]
        first = [cls(token, tokens[token], None, None, ()) for token in ids[:1]]
        others = [
            cls(token, tokens[token], logprob, rank, tuple(TokenLogprob(each, tokens[each], of) for each, of in best))
            for token, (logprob, rank, best) in zip(ids[1:], sequence.prompt_scores, strict=True)
        ]
        return (*first, *others)


class Scores(NamedTuple):
    """Tokens with scores as in `Generation`."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    raw_logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None
    raw_top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None

    @classmethod
    def of(cls, sequence: SequenceState, begin: int, end: int, vocabulary: Vocabulary) -> Scores:
        """Return the scores of a text's tokens from `begin` to `end` of its output."""
        part = slice(sequence.inside + begin, sequence.inside + end)
        tops: list[tuple[tuple[TokenLogprob, ...], ...]] = [
            tuple(
                tuple(TokenLogprob(token, vocabulary.tokens[token], logprob) for token, logprob in both[which])
                for both in sequence.best[part]
            )
            for which in (0, 1)
        ]
        top, raw_top = tops if sequence.request.best else (None, None)
        return cls(
            tuple(sequence.tokens[part]), tuple(sequence.scores[part]), tuple(sequence.raw_scores[part]), top, raw_top
        )


class Alternative(NamedTuple):
    """An alternative value at a place of an answer, or a token; see `Field`."""

    value: Any
    probability: float


@dataclass(frozen=True)
class Field:
    """The probability of one value of an answer, given the prompt and the text before it.

    exact: True if the constraint leaves a list of values, each of which was scored over all its tokenizations, up to
        0.0001 in all: constants, choices, enums, booleans, null, and few numbers or strings. Otherwise the probability
        is that of the chosen tokens, without other tokenizations.
    probability: product of each token's probability among the allowed tokens, as in masked sampling; a token that
        reaches beyond the value counts in full
    alternatives: if exact, all values with their probabilities, best first, including the chosen one; otherwise the
        most probable other tokens at the first token that had any, as texts
    """

    value: Any
    probability: float
    alternatives: tuple[Alternative, ...]
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-compatible dict. Dates, Enum members and other non-JSON values become texts."""
        others = [{"value": _plain(each.value), "probability": each.probability} for each in self.alternatives]
        return {
            "value": _plain(self.value),
            "probability": self.probability,
            "alternatives": others,
            "exact": self.exact,
        }


class ReadPrompt:
    """The tokens that a model read before a text, decoded on demand. It is pickled as text.

    Encoder-decoders give the encoder's tokens.
    """

    def __init__(self, sequence: SequenceState, vocabulary: Vocabulary) -> None:
        start = sequence.request.start
        joined = next((content.tokens for content in start.held if content.tokens), None)
        # A prompt with bidirectional attention consists of rows of one content, which has the original tokens.
        self._ids = start.source or (start.prompt if joined is None else (*joined, *words_behind(start.prompt)))
        # the healed prompt tail is part of the generated tokens
        self._healed = () if start.source else tuple(sequence.tokens[: sequence.inside + 1])
        self._tail = 0 if start.source else start.tail
        self.inside = tuple(sequence.tokens[: sequence.inside])
        self._vocabulary = vocabulary

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens that were read before generation."""
        return tuple(token for token in self._ids if token > BEGIN)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by kind of content, "image" and "audio"."""
        return counts_of(self._ids)

    @cached_property
    def text(self) -> str:
        """The text, without special tokens."""
        decode = self._vocabulary.decode
        read = decode(self.ids)
        return (read + decode(self._healed)[: self._tail]).decode(errors="replace")

    def __getstate__(self) -> dict[str, Any]:
        rows = (row_id(kind == "audio", row) for kind, count in self.counts.items() for row in range(count))
        return {"text": self.text, "_ids": tuple(rows)}


@dataclass(frozen=True, repr=False)
class Generation(Generic[T_co]):
    """One generated text.

    value: the text in its Python type; None beside an error
    token_ids: without EOS and stop ids
    overlap: number of bytes of the first token that belong to the healed prompt; usually 0
    finish_reason: "complete" (EOS, or the constraint is met and the text ends), "stop" (a stop string or id), "length"
        (max_tokens)
    logprobs, raw_logprobs: natural logarithms of the tokens' probabilities among the allowed tokens, and among all, at
        temperature 1; None unless requested
    top_logprobs, raw_top_logprobs: if a number was requested, the most probable tokens at each place in both
        distributions, best first; fewer if others are impossible. The chosen token need not be among them; None unless
        requested
    prompt_logprobs: a `PromptToken` for each token of the prompt: `token_id`, `token`, `logprob` after the tokens
        before it, at temperature 1 and without a constraint, `rank` among all, from 1, and `top_logprobs`, the most
        probable tokens at its place; `logprob` and `rank` are None for the first token. None unless requested
    score: the sum of logprobs, of the logprob of a chosen EOS, and of those of tokens within a healed prompt tail; None
        likewise; for beam search always the ranking score, see `Beam`
    spans: positions of the quoted strings of a JSON value by their JSON pointers, and of the quotations of a grammar,
        as "/name/0" for the first from the context `name`; empty without quotations
    captures: of a grammar with `[capture]`, and of a pattern with named groups, the matches of each name in order, with
        their positions in the constrained text; empty for a text that was cut short
    overruled: the controls no_repeat_ngram_size and min_tokens that did not hold, because the constraint left no other
        token
    diagnostics: the constraint's effect on each token; None unless requested
    unmet: the goals of `include` that the text does not meet; possible only if a stop string cut it short
    steps: number of forward passes of the model for the text, those over its prompt included; fewer than tokens if some
        were forced or drafted, see docs/drafts.md
    log_weight: of a text drawn by `Importance` or `SMC`, the natural logarithm of its weight, the probability that the
        model alone stays within the constraint along it; 0 for unweighted draws, as those of `Exact`; else None
    log_z, ess, tokens_read: of the text's sampler, None likewise: the logarithm of an estimate of the probability that
        the model writes a text of the constraint; the effective sample size; tokens after the prompt that the model
        read, for each text
    acceptance: the accepted share of the attempts of `Exact`
    distance: of `Importance`, an estimate of the total variation distance between sampling under the masks and the
        model's own distribution of the constraint's texts, 0 to 1
    trace: the beam search of the prompt, the same for all its results; None unless requested
    unenforced: for keywords of a JSON Schema that were not enforced, by their JSON pointers, whether they hold; None if
        unknown
    thought, thought_cut: of a generator with `after=`, the free text before the marker, and True if its budget ended
        it; `value`, `spans`, `captures` and `unenforced` then refer to the text behind the marker, and `text` has all
    fields: with `fields=True` the probability of each value by its JSON pointer, "" for an answer that is one value;
        objects and arrays have those of their members
    error: the exception of the conversion to a value, for example by a validator of a type; else None
    lookup_error: the limit that prevented `spans`, `captures` or `unenforced`; text and value are valid, and a call
        returns them; else None
    """

    text: str
    value: T_co
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    overlap: int = 0
    logprobs: tuple[float, ...] | None = None
    raw_logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    raw_top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    prompt_logprobs: tuple[PromptToken, ...] | None = None
    score: float | None = None
    spans: Mapping[str, Span] = field(default_factory=dict[str, "Span"])
    captures: Mapping[str, tuple[Capture, ...]] = field(default_factory=dict[str, "tuple[Capture, ...]"])
    overruled: tuple[str, ...] = ()
    diagnostics: Diagnostics | None = None
    unmet: tuple[str, ...] = ()
    trace: SearchTrace | None = None
    steps: int = field(default=0, compare=False)
    log_weight: float | None = None
    log_z: float | None = None
    ess: float | None = None
    tokens_read: float | None = None
    acceptance: float | None = None
    distance: float | None = None
    unenforced: Mapping[str, bool | None] = field(default_factory=dict[str, bool | None])
    error: Exception | None = None
    lookup_error: TrellmError | None = None
    thought: str | None = None
    thought_cut: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict[str, Field])
    read: ReadPrompt | None = field(default=None, repr=False, compare=False)

    @property
    def prompt(self) -> str:
        """The text that the model read: a rendered chat, a schema added by `describe`, and a frame's text before the
        answer.

        Special tokens are left out.
        """
        return "" if self.read is None else self.read.text

    @property
    def image_tokens(self) -> int:
        """The number of image rows in the prompt."""
        return 0 if self.read is None else self.read.counts["image"]

    @property
    def audio_tokens(self) -> int:
        """The number of audio rows in the prompt."""
        return 0 if self.read is None else self.read.counts["audio"]

    @property
    def warning(self) -> str | None:
        """A line on where the constraint may have overruled the model: see `Diagnostics.warning`; None without
        diagnostics."""
        return None if self.diagnostics is None else self.diagnostics.warning

    def __repr__(self) -> str:
        """Show text, value if different, and finish reason. Further results are only named."""
        parts = [_short(self.text)]
        if self.error is not None:
            parts.append(f"error={_short(self.error)}")
        elif not isinstance(self.value, str) or self.value != self.text:
            parts.append(f"value={_short(self.value)}")
        if self.lookup_error is not None:
            parts.append(f"lookup_error={_short(self.lookup_error)}")
        count = len(self.token_ids)
        parts += [f"{count} token{'s' if count != 1 else ''}", f"finish_reason={self.finish_reason!r}"]
        if self.thought is not None:
            parts.append(f"thought={_short(self.thought)}" + (", which was cut" if self.thought_cut else ""))
        if self.score is not None:
            parts.append(f"score={self.score:.3f}")
        weighed = {"log_weight": self.log_weight, "log_z": self.log_z}
        parts += [f"{name}={value:.3f}" for name, value in weighed.items() if value is not None]
        parts += [
            f"{name}={value!r}" for name in ("unmet", "overruled", "unenforced") if (value := getattr(self, name))
        ]
        named = ("spans", "captures", "fields", "logprobs", "top_logprobs", "prompt_logprobs", "diagnostics", "trace")
        more = [name for name in named if getattr(self, name)]
        return f"<Generation {', '.join(parts)}{'; with ' if more else ''}{', '.join(more)}>"

    def _repr_html_(self) -> str | None:
        """Return the page section of the diagnostics for notebooks; None without diagnostics."""
        return None if self.diagnostics is None else self.diagnostics._repr_html_()  # pyright: ignore[reportPrivateUsage]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during generation. `finished` has an entry for every prompt: its result, None if unfinished.

    With `n > 1` the entry is the list of its texts, with None for unfinished ones, or None if all are unfinished.
    """

    def __init__(self, finished: Sequence[Any]) -> None:
        super().__init__(f"{finished_of(finished)}; see .finished")
        self.finished = list(finished)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.finished,)


def finished_of(finished: Sequence[Any]) -> str:
    """Describe the share of finished prompts."""
    done = sum(result is not None and not (isinstance(result, list) and None in result) for result in finished)
    return f"{done} of {len(finished)} prompts were finished"


@contextmanager
def keeping(saved: Callable[[], list[Any]]) -> Generator[None]:
    """Attach the results so far, returned by `saved`, to exceptions in the block. Ctrl-C becomes Interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(saved()) from None
    except BaseException as error:
        keep_results(error, saved())
        raise


def keep_results(error: BaseException, saved: list[Any]) -> None:
    """Attach results to an exception, which may be of a class of the model's own."""
    with suppress(AttributeError, TypeError):  # the exception may refuse attributes
        error.finished = saved  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        error.add_note(f"{finished_of(saved)} before; see .finished of this exception")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def values_of(found: Sequence[Any], prompts: Sequence[Prompt]) -> list[Any]:
    """Replace generations by their values in the same lists. Raises ConversionError if one has an error."""
    failed = [
        (number, result) for number, entry in enumerate(found) for result in listed(entry) if result.error is not None
    ]
    if not failed:
        return [_value(entry) for entry in found]
    number, result = failed[0]
    others = f", and {len(failed) - 1} more were" if len(failed) > 1 else " was"
    raise ConversionError(
        f"the output of prompt {number} ({brief(prompts[number])}){others} refused: {brief(result.text)} "
        f"({type(result.error).__name__}: {result.error}); see .results for all that came out, or draw again with "
        "search=Sample(...) and retries=3",
        found,
        number,
        result.text,
    ) from result.error


def listed(entry: Any) -> list[Any]:
    """Return a prompt's results, one or several, as a list."""
    return cast("list[Any]", entry) if isinstance(entry, list) else [entry]


def _value(entry: Any) -> Any:
    return [_value(result) for result in listed(entry)] if isinstance(entry, list) else entry.value
