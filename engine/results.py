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
from .prompts.given import Prompt
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
    """A token that might be chosen.

    token: its bytes, None where it has none, as EOS; logprob: the natural logarithm of its probability
    """

    token_id: int
    token: bytes | None
    logprob: float


class PromptToken(NamedTuple):
    """A token of a prompt, with what the model said of it behind those before it; of the first it said nothing.

    rank: 1 + how many tokens are likelier; top_logprobs: the likeliest in its place, best first, where asked for
    """

    token_id: int
    token: bytes | None
    logprob: float | None
    rank: int | None
    top_logprobs: tuple[TokenLogprob, ...]

    @classmethod
    def several_of(cls, sequence: SequenceState, vocabulary: Vocabulary) -> tuple[PromptToken, ...] | None:
        """Those of a prompt that was read; None unless they were asked for."""
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
    """Tokens with what `Generation` says of them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    raw_logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None
    raw_top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None

    @classmethod
    def of(cls, sequence: SequenceState, begin: int, end: int, vocabulary: Vocabulary) -> Scores:
        """Those of a text's tokens, from one place of its output to another."""
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
    """A value that might have stood in a place of an answer, or a token; see `Field`."""

    value: Any
    probability: float


@dataclass(frozen=True)
class Field:
    """The probability of one value of an answer, given the prompt and the text before it.

    exact: whether the value is one of a list that the constraint leaves, each of which was scored, in all ways that
        tokens spell it, up to 0.0001 in all: constants, choices, enums, booleans, null, and few numbers or strings.
        Else the probability is that of the tokens that were chosen, and a text spelt otherwise is not in it.
    probability: product of what each token has among the tokens that the constraint allows, as in masked sampling; of
        a token that reaches beyond the value all counts
    alternatives: where it is exact all values with their probabilities, best first, the chosen one among them; else
        the likeliest other tokens at the first token that had any, as texts
    """

    value: Any
    probability: float
    alternatives: tuple[Alternative, ...]
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON; values that JSON does not have, such as dates and an Enum's members, as texts."""
        others = [{"value": _plain(each.value), "probability": each.probability} for each in self.alternatives]
        return {
            "value": _plain(self.value),
            "probability": self.probability,
            "alternatives": others,
            "exact": self.exact,
        }


class ReadPrompt:
    """The tokens that a model read before a text, made a text when somebody wants it; sent as that text.

    Of an encoder-decoder model they are the encoder's.
    """

    def __init__(self, sequence: SequenceState, vocabulary: Vocabulary) -> None:
        start = sequence.request.start
        joined = next((content.tokens for content in start.held if content.tokens), None)
        # A prompt whose tokens look at one another is rows of one content, which knows what they stand for.
        self._ids = start.source or (start.prompt if joined is None else (*joined, *words_behind(start.prompt)))
        # A prompt's end that was healed is among what was generated.
        self._healed = () if start.source else tuple(sequence.tokens[: sequence.inside + 1])
        self._tail = 0 if start.source else start.tail
        self.inside = tuple(sequence.tokens[: sequence.inside])
        self._vocabulary = vocabulary

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens that were read before any was generated."""
        return tuple(token for token in self._ids if token > BEGIN)

    @property
    def counts(self) -> dict[str, int]:
        """Counts of rows by the kind of content, "image" and "audio"."""
        return counts_of(self._ids)

    @cached_property
    def text(self) -> str:
        """The text, without tokens that have none."""
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
    overlap: how many bytes of the first of token_ids are the end of the prompt, which was healed; 0 for most
    finish_reason: "complete" (EOS, or the constraint is met and the text ends), "stop" (a stop string or id),
        "length" (max_tokens)
    logprobs, raw_logprobs: natural logarithms of the tokens' probabilities among the allowed tokens, and
        among all, at temperature 1; None unless asked for
    top_logprobs, raw_top_logprobs: where a number of them was asked for, for each token the likeliest ones at its place
        with their log-probabilities, in both distributions, best first; fewer where others are not possible. What was
        chosen need not be among them; None unless asked for
    prompt_logprobs: of each token of the prompt, a `PromptToken`: `token_id`, `token`, `logprob` behind those before
        it, at temperature 1 and without a constraint, `rank` among all, from 1, and `top_logprobs`, the likeliest in
        its place; `logprob` and `rank` are None for the first token. None unless asked for
    score: the sum of logprobs and of that of EOS, where it was chosen, and of those of tokens within a prompt's end
        that was generated again; None likewise; of a text found by beam search,
        always what it was ranked by, see `Beam`
    spans: where the quoted strings of a JSON value stand, by their JSON pointers, and the quotations of a grammar,
        as "/name/0" for the first from the context `name`; empty if nothing was to be quoted
    captures: of a grammar with `[capture]`, and of a pattern with named groups, what each name has read, in order, with
        its place in the text that the constraint is about; empty for a text that was cut short
    overruled: which of no_repeat_ngram_size and min_tokens did not hold, because the constraint left nothing else
    diagnostics: what the constraint did to each token; None unless asked for
    unmet: the goals of `include` that the text does not meet; there are some only where a stop string cut it short
    steps: how many forward passes of the model the text took, those over its prompt included; fewer than tokens where
        some follow from the constraint or were guessed, see docs/drafts.md
    log_weight: of a text drawn by `Importance` or `SMC`, the natural logarithm of its weight, the probability that the
        model by itself would have stayed within the constraint along it; 0 for draws, as those of `Exact`; else None
    log_z, ess, tokens_read: of the search that it is of, None likewise: the logarithm of an estimate of the probability
        that the model writes a text of the constraint; how many draws its texts are worth; how many tokens behind the
        prompt the model read, for each text
    acceptance: the share of the attempts of `Exact` that came to a text
    distance: of `Importance`, an estimate of the total variation distance between sampling under the masks and the
        model's own distribution of the constraint's texts, 0 to 1
    trace: how the beam search went that found it; one for all results of a prompt; None unless asked for
    unenforced: of keywords of a JSON Schema that were not enforced, by their JSON pointers, whether they hold,
        None where that cannot be told
    thought, thought_cut: of a generator with `after=`, the free text before the marker, and whether its budget
        ended it; `value`, `spans`, `captures` and `unenforced` are then of what follows the marker, and `text` has all
    fields: with `fields=True` how likely each value is, by its JSON pointer, "" for an answer that is one value;
        objects and arrays have those of their members
    error: what was raised when the value was made of the text, by a validator of a type for example; else None
    lookup_error: the limit that kept `spans`, `captures` or `unenforced` from being found; the text and its value are
        right all the same, and a call gives them; else None
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
        """The text that the model read: what a chat's template wrote, a schema that `describe` added, and the text
        before the answer of a frame, without tokens that have no text, as special ones."""
        return "" if self.read is None else self.read.text

    @property
    def image_tokens(self) -> int:
        """Count of the prompt's tokens that are of images."""
        return 0 if self.read is None else self.read.counts["image"]

    @property
    def audio_tokens(self) -> int:
        """Count of the prompt's tokens that are of audio."""
        return 0 if self.read is None else self.read.counts["audio"]

    @property
    def warning(self) -> str | None:
        """A line on where the constraint may have decided against the model: see `Diagnostics.warning`; None else."""
        return None if self.diagnostics is None else self.diagnostics.warning

    def __repr__(self) -> str:
        """Text, value where it is another, and how it ended; what was asked for besides is only named."""
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
        """In a notebook, the text as its diagnostics show it, where there are any."""
        return None if self.diagnostics is None else self.diagnostics._repr_html_()  # pyright: ignore[reportPrivateUsage]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during generation. `finished` has an entry for every prompt: its result, None if unfinished.

    With `n > 1` the entry is the list of its texts, in which those that are unfinished are None, or None if all are.
    """

    def __init__(self, finished: Sequence[Any]) -> None:
        super().__init__(f"{finished_of(finished)}; see .finished")
        self.finished = list(finished)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.finished,)


def finished_of(finished: Sequence[Any]) -> str:
    """The share of what was asked for that is there, in words."""
    done = sum(result is not None and not (isinstance(result, list) and None in result) for result in finished)
    return f"{done} of {len(finished)} prompts were finished"


@contextmanager
def keeping(saved: Callable[[], list[Any]]) -> Generator[None]:
    """A block whose exceptions have the results so far, which `saved` tells: Ctrl-C becomes Interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(saved()) from None
    except BaseException as error:
        keep_results(error, saved())
        raise


def keep_results(error: BaseException, saved: list[Any]) -> None:
    """Attach the results to what was raised midway, which may be an exception of the model's own."""
    with suppress(AttributeError, TypeError):  # an exception that takes no attributes
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
    """The values in place of the generations, in the same lists. Raises ConversionError if there is one without."""
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
    """A prompt's results, one or several, in a list."""
    return cast("list[Any]", entry) if isinstance(entry, list) else [entry]


def _value(entry: Any) -> Any:
    return [_value(result) for result in listed(entry)] if isinstance(entry, list) else entry.value
