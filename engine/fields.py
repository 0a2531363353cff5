"""Probabilities of the values in an answer, for `fields=True`: their positions, alternatives and probabilities."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..checks import brief, implements
from ..errors import OptionError
from ..guides.healing import AlignedGuide
from ..guides.json_guide import JSONGuide
from ..guides.json_schema.read.subschema import step_of
from ..guides.protocol import DEAD, ByteGuide, Mask, mask_of, tokens_of
from ..guides.regular_guide import ChoiceGuide, RegularGuide
from ..tokenizers_adapter import Vocabulary
from .decode.frames import Frame
from .decode.guide_cache import GuideCache
from .decode.requests import Job
from .decode.sequence import SequenceState
from .engine import OnResult, run_together
from .handle import Task
from .models.protocol import Model, SourceModel
from .options import MAX_BEST, Options
from .prompts.arguments import Prompt
from .results import Alternative, Field, Generation
from .search import Beam, Target
from .structures import read_json

LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"|true|false|null|-?[0-9][0-9.eE+-]*')
_NUMBER_BYTES = b"0123456789.eE+-"


def places_in(text: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the scalar values of JSON text that may be cut off. A value that is cut off is skipped.

    Each is a JSON pointer (RFC 6901) with the start and end of the value's bytes.
    """
    open_: list[list[str | int]] = []  # current [name] or [index] of each open container
    place = 0
    while place < len(text):
        byte = text[place : place + 1]
        if byte in b"{[":
            open_.append(["" if byte == b"{" else 0])
            place += 1
        elif byte in b"}]":
            open_.pop()
            place += 1
        elif byte == b"," and isinstance(index := open_[-1][0], int):
            open_[-1][0] = index + 1
            place += 1
        elif (found := literal_at(text, place)) is not None:
            if open_ and isinstance(open_[-1][0], str) and (colon := re.compile(rb"\s*:\s*").match(text, found)):
                open_[-1][0] = _name(text[place:found])
                place = colon.end()
                continue
            yield "".join(f"/{step_of(step[0])}" for step in open_), place, found
            place = found
        elif byte in b" \t\n\r,":
            place += 1
        else:
            return


def literal_at(text: bytes, place: int) -> int | None:
    """Return the end of the literal that begins at a position; None if it is incomplete.

    A number is complete if another byte follows, or at the end of the text.
    """
    found = LITERAL.match(text, place)
    return None if found is None else found.end()


def is_decided(text: bytes) -> bool:
    """Test whether a text begins with a value that no continuation extends."""
    end = literal_at(text, 0)
    return end is not None and (text[end - 1] not in _NUMBER_BYTES or end < len(text) or text[:1].isalpha())


def _name(literal: bytes) -> str:
    return str(json.loads(literal))


MAX_ALTERNATIVES = 128
"""Greatest number of values, or of prefixes followed at once, for listing a place's values."""
MAX_TRIED = 1000
"""Greatest number of states whose bytes are all tried while listing values."""
LEAST = 1e-5
"""Least probability of token paths that are followed. The sum of dropped ones is reported as missing."""
MAX_PATHS = 2000
ROWS = 64


_NO_VALUE = b" \t\n\r]"
"""Bytes that begin no value: white space, and the end of an array in place of an item."""


class ValuePlace(NamedTuple):
    """The place of a value. prompt: tokens before the value; lead: bytes of the next token before the value

    guide, state: the constraint after the lead; is_json: True for a part of JSON text, False for the whole text
    """

    prompt: tuple[int, ...]
    lead: bytes
    guide: ByteGuide
    state: int
    is_json: bool

    def is_full(self, text: bytes) -> bool:
        """Test whether a text contains the complete value."""
        return self.is_json and is_decided(text)

    def begins(self, text: bytes) -> bool:
        """Test whether a text may begin the value, rather than white space or the end of its array."""
        return not (self.is_json and text[:1] in _NO_VALUE and text)

    def value(self, text: bytes) -> bytes:
        """Return the value's own bytes of a text with the complete value."""
        return text[: literal_at(text, 0)] if self.is_json else text


def listed(place: ValuePlace) -> set[bytes] | None:
    """Return all possible values of a place; None if there are too many."""
    guide, found, tried = place.guide, set[bytes](), 0
    left = [(b"", place.state)]
    while left:
        text, state = left.pop()
        if guide.is_accepting(state):
            found.add(place.value(text))
        tried += 1
        for byte in range(256):
            after = guide.read(state, bytes([byte]))
            if after == DEAD:
                continue
            longer = text + bytes([byte])
            if not place.begins(longer):
                continue
            if place.is_full(longer):
                found.add(place.value(longer))
            else:
                left.append((longer, after))
            if len(left) + len(found) > MAX_ALTERNATIVES:
                return None
        if tried > MAX_TRIED:
            return None
    return found


class TokenPath(NamedTuple):
    """Tokens after a place's prompt, the state after them, their bytes, and their probability."""

    tokens: tuple[int, ...]
    state: int
    text: bytes
    chance: float


def chances(model: Model, place: ValuePlace) -> tuple[dict[bytes, float], float]:
    """Return the probability of each value, summed over its tokenizations, and the missing probability.

    At each token the allowed ones are renormalised, as in masked sampling, without those that would put white space
    before the value or end its array.
    """
    start: Any = _Beginning(place.guide, place.state)
    guide: Any = AlignedGuide(start, place.lead) if place.lead else start
    lead, tokens, eos = len(place.lead), model.vocabulary.tokens, frozenset(model.vocabulary.eos_ids)
    found: defaultdict[bytes, float] = defaultdict(float)
    open_: list[TokenPath] = [TokenPath((), guide.start, b"", 1.0)]
    missing, followed = 0.0, 0
    while open_:
        open_.sort(key=lambda path: -path.chance)
        room = MAX_PATHS - followed
        missing += sum(path.chance for path in open_[room:])
        level = open_[:room]
        open_ = []
        followed += len(level)
        allowed = [
            [
                token
                for token in tokens_of(guide.mask(path.state))
                if place.begins((path.text + (tokens[token] or b""))[lead:])
            ]
            for path in level
        ]
        after = _next(model, [(*place.prompt, *path.tokens) for path in level], allowed)
        for path, shares in zip(level, after, strict=True):
            missing += path.chance * max(0.0, 1 - sum(shares.values()))
            for token, share in shares.items():
                chance = path.chance * share
                text = path.text if token in eos else path.text + (tokens[token] or b"")
                if token in eos or place.is_full(text[lead:]):
                    found[place.value(text[lead:])] += chance
                elif chance < LEAST:
                    missing += chance
                else:
                    open_.append(TokenPath((*path.tokens, token), guide.advance(path.state, token), text, chance))
    return dict(found), missing


def _next(model: Model, prompts: Sequence[tuple[int, ...]], allowed: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """Return the renormalised probabilities of the allowed tokens after each prompt.

    An ending token is compared separately with the others, since a chosen end reports only its own probability. Without
    a choice between text tokens, the model is not queried for them.
    """
    eos = frozenset(model.vocabulary.eos_ids)
    queries: list[tuple[int, int | None, _Step]] = []
    others: list[list[int]] = []
    for number, several in enumerate(allowed):
        others.append([token for token in several if token not in eos])
        if others[-1] and len(several) > 1:
            ends = [token for token in several if token in eos]
            if len(others[-1]) > 1:
                queries.append((number, None, _Step(model, others[-1])))
            queries += [(number, end, _Step(model, [*others[-1], end])) for end in ends]
    best = min(MAX_BEST, model.vocabulary.size)
    options = Options(max_tokens=1, logprobs=best, draft=False, heal=False, batch_size=ROWS, progress=False)
    answers = run_together([(step, prompts[number] or "") for number, _, step in queries], options)
    shares: list[dict[int, float]] = [{each[0]: 1.0} if len(each) == 1 else {} for each in others]
    odds: list[dict[int, float]] = [{} for _ in allowed]
    for (number, end, _), result in zip(queries, answers, strict=True):
        if end is None:
            shares[number] = result.value
        else:
            share = min(result.value.get(end, 0.0), 1 - 1e-15)
            odds[number][end] = share / (1 - share)
    found: list[dict[int, float]] = []
    for several, each, ends in zip(allowed, shares, odds, strict=True):
        if not each:
            found.append({several[0]: 1.0})
            continue
        total = 1 + sum(ends.values())
        found.append({token: share / total for token, share in [*each.items(), *ends.items()]})
    return found


class _Step:
    """A `Task` that returns the renormalised probabilities of some tokens after a prompt."""

    text_prefix = b""

    def __init__(self, model: Model, allowed: Sequence[int]) -> None:
        self.model = model
        self._guide = _OneToken(model.vocabulary, allowed)

    def job(self, prompt: Prompt, options: Options) -> Job:
        """Return the prompt with a constraint to one of the tokens."""
        return Job(prompt, GuideCache(self._guide, self.model.sparse_head_limit))

    def result(self, sequence: SequenceState, options: Options) -> Generation[dict[int, float]]:
        """Return the probabilities of the tokens, or only that of the end if it was chosen."""
        if sequence.tokens:
            shares = {token: math.exp(logprob) for token, logprob in sequence.best[0][0]}
        else:
            shares = dict.fromkeys(self._guide.ends, math.exp(sequence.end_score))
        return Generation("", shares, (), "complete")


class _Beginning:
    """A guide with another start state."""

    def __init__(self, guide: ByteGuide, state: int) -> None:
        self.vocabulary, self.start = guide.vocabulary, state
        self.mask, self.advance, self.is_accepting = guide.mask, guide.advance, guide.is_accepting
        self.distance, self.read = guide.distance, guide.read


class _OneToken:
    """A guide for one of some tokens and the end. It needs one step of the model."""

    start = 0

    def __init__(self, vocabulary: Vocabulary, allowed: Sequence[int]) -> None:
        self.vocabulary = vocabulary
        self._allowed = frozenset(allowed)
        self._masks = mask_of(allowed, vocabulary.size), mask_of(vocabulary.eos_ids, vocabulary.size)
        self.ends = [token for token in allowed if token in vocabulary.eos_ids]

    def mask(self, state: int) -> Mask:
        """Return the allowed tokens, or those that end the text."""
        return self._masks[state] if state != DEAD else np.zeros_like(self._masks[0])

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token. Ending tokens keep the state."""
        if token in self.vocabulary.eos_ids:
            return state if self.is_accepting(state) else DEAD
        return 1 if state == 0 and token in self._allowed else DEAD

    def is_accepting(self, state: int) -> bool:
        """Test whether the text may end."""
        return state == 1 or (state == 0 and bool(self.ends))

    def distance(self, state: int) -> int:
        """Return the fewest tokens to the end."""
        return 0 if self.is_accepting(state) else 1


MAX_MISSING = 1e-4
"""Greatest missing probability of a field that is called exact."""
MAX_CHOICES = 1000


def check_fields(model: Model, guide: Any, frame: Any, options: Options) -> None:
    """Raise OptionError if values have no probabilities of their own. guide: guide of the answer alone"""
    search: Any = options.search
    reason = None
    if not isinstance(guide, (JSONGuide, RegularGuide)):
        reason = f"needs JSON, choices, patterns or formats, not {'free text' if guide is None else brief(guide)}"
    elif frame is not None and not isinstance(frame, Frame):
        reason = (
            'needs an answer without a frame, or with a frame of two texts; leave out frame="sentence" and "reasoning"'
        )
    elif implements(model, SourceModel):
        reason = f"needs a decoder; {model!r} is an encoder-decoder"
    elif isinstance(search, (Beam, Target)):
        reason = f"with search={search!r}: tokens are scored as they are chosen; use Greedy() or Sample(...)"
    elif options.include:
        reason = "with include=: required content changes the probabilities of values; leave it out"
    if reason is not None:
        raise OptionError(f"fields=True {reason}")


class FieldScorer:
    """Adds probabilities of values to results.

    task: generates the results; guide: of the whole text, with the closing mark; frame: contains that mark
    convert: converts the text of a value that is the whole answer
    """

    def __init__(self, task: Task, guide: Any, frame: Frame | None, convert: Any) -> None:
        self._task = task
        self._guide = guide
        self._behind = frame.behind if frame is not None else ""
        self._is_json = isinstance(guide, JSONGuide) or isinstance(getattr(guide, "child", None), JSONGuide)
        self._convert = convert

    def run(self, prompts: Sequence[Prompt], options: Options, on_result: OnResult | None) -> list[Any]:
        """Return results of `run` with fields for a list of prompts."""
        scored: dict[tuple[int, int], Generation[Any]] = {}

        def keep(number: int, sample: int, result: Generation[Any]) -> None:
            scored[number, sample] = self.scored(result, options)
            if on_result is not None:
                on_result(number, sample, scored[number, sample])

        found = run_together([(self._task, prompt) for prompt in prompts], options, keep)
        if options.search.n == 1:
            return [scored[number, 0] for number in range(len(found))]
        return [[scored[number, sample] for sample in range(len(each))] for number, each in enumerate(found)]

    def scored(self, result: Generation[Any], options: Options) -> Generation[Any]:
        """Return a result with fields. Log-probabilities that were not requested are removed."""
        fields = self._fields(result)
        shown: dict[str, Any] = {}
        if not options.logprobs:
            shown = dict.fromkeys(("logprobs", "raw_logprobs", "score"))
        if isinstance(options.logprobs, bool):
            shown |= dict.fromkeys(("top_logprobs", "raw_top_logprobs"))
        elif result.top_logprobs is not None and result.raw_top_logprobs is not None:
            shown["top_logprobs"] = tuple(each[: options.logprobs] for each in result.top_logprobs)
            shown["raw_top_logprobs"] = tuple(each[: options.logprobs] for each in result.raw_top_logprobs)
        return replace(result, fields=fields, **shown)

    def _fields(self, result: Generation[Any]) -> Mapping[str, Field]:
        assert result.read is not None
        text = result.text.encode()
        spellings = [self._task.model.vocabulary.tokens[token] or b"" for token in result.token_ids]
        ends = list(accumulate(map(len, spellings), initial=-result.overlap))
        several = places_in(text) if self._is_json else [("", 0, len(text))]
        before = (*result.read.ids, *result.read.inside)
        found: dict[str, Field] = {}
        for pointer, begin, end in several:
            first = max((number for number in range(len(spellings)) if ends[number] <= begin), default=0)
            lead = spellings[first][: begin - ends[first]] if spellings else b""
            state = self._guide.read(self._guide.start, text[:begin])
            place = ValuePlace((*before, *result.token_ids[:first]), lead, self._guide, state, self._is_json)
            field = self._of_list(place, text[begin:end])
            if field is None:
                last = max((number for number in range(len(spellings)) if ends[number] < end), default=first)
                field = self._of_tokens(result, range(first, last + 1), text[begin:end])
            found[pointer] = field
        return found

    def _of_list(self, place: ValuePlace, chosen: bytes) -> Field | None:
        """Return the field of a value with few alternatives; None if there are many."""
        child = getattr(self._guide, "child", self._guide)
        is_short_list = isinstance(child, ChoiceGuide) and len(child.choices) <= MAX_CHOICES
        mark = self._behind if not place.is_json else ""
        values = {(each + mark).encode() for each in child.choices} if is_short_list else listed(place)
        if values is None:
            return None
        if len(values) == 1:
            found, missing = dict.fromkeys(values, 1.0), 0.0
        else:
            found, missing = chances(self._task.model, place)
        shares = {value.decode().removesuffix(mark): found.get(value, 0.0) for value in values}
        ranked = sorted(shares.items(), key=lambda each: -each[1])
        alternatives = tuple(Alternative(self._value(text), share) for text, share in ranked)
        text = chosen.decode()
        return Field(self._value(text), shares.get(text, 0.0), alternatives, exact=missing <= MAX_MISSING)

    def _of_tokens(self, result: Generation[Any], numbers: range, chosen: bytes) -> Field:
        """Return the field of a value with many alternatives, from the probabilities of its tokens."""
        assert result.logprobs is not None
        assert result.top_logprobs is not None
        total = sum(result.logprobs[number] for number in numbers)
        if not self._is_json and result.score is not None:  # includes the end of the text
            total = result.score
        alternatives: tuple[Alternative, ...] = ()
        for number in numbers:
            others = [each for each in result.top_logprobs[number] if each.token_id != result.token_ids[number]]
            if others:
                alternatives = tuple(
                    Alternative((each.token or b"").decode(errors="replace"), math.exp(each.logprob)) for each in others
                )
                break
        return Field(self._value(chosen.decode()), min(1.0, math.exp(total)), alternatives, exact=False)

    def _value(self, text: str) -> Any:
        if self._is_json:
            return read_json(text)
        return text if self._convert is None else self._convert(text)
