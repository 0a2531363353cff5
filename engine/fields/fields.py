"""The probability of each value of an answer, for `fields=True`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ...checks import brief, conforms
from ...errors import OptionError
from ...guides.json_guide import JSONGuide
from ...guides.regular_guide import ChoiceGuide, RegularGuide
from ..decode.frames import Frame
from ..handle import Task
from ..models.protocol import Model, SourceModel
from ..options import Options
from ..prompts.given import Prompt
from ..results import Alternative, Field, Generation
from ..running import Told, run_together
from ..search import Beam, Target
from ..structures import read_json
from .places import places_in
from .values import Place, chances, listed

MOST_MISSING = 1e-4
"""So much of the probability may be lost to paths that were not followed where a field calls itself exact."""
MOST_CHOICES = 1000


def check_fields(model: Model, guide: Any, frame: Any, options: Options) -> None:
    """Raise OptionError where values have no probabilities of their own. guide: of the answer alone"""
    search: Any = options.search
    reason = None
    if not isinstance(guide, (JSONGuide, RegularGuide)):
        reason = f"is for JSON, choices, patterns and formats, not for {'free text' if guide is None else brief(guide)}"
    elif frame is not None and not isinstance(frame, Frame):
        reason = 'needs an answer that stands alone, or between two texts; leave out frame="sentence" and "reasoning"'
    elif conforms(model, SourceModel):
        reason = f"is for decoders, and {model!r} reads prompts apart from its answers"
    elif isinstance(search, (Beam, Target)):
        reason = f"with search={search!r}: tokens are scored as they are chosen; use Greedy() or Sample(...)"
    elif options.include:
        reason = "with include=: what must be said changes what each value is likely to be; leave it out"
    if reason is not None:
        raise OptionError(f"fields=True {reason}")


class FieldScorer:
    """Adds to results the probabilities of their values.

    task: what the results are of; guide: of all its text, with the mark behind an answer; frame: what has that
    convert: from the text of a value that is all of the answer to the value
    """

    def __init__(self, task: Task, guide: Any, frame: Frame | None, convert: Any) -> None:
        self._task = task
        self._guide = guide
        self._behind = frame.behind if frame is not None else ""
        self._is_json = isinstance(guide, JSONGuide) or isinstance(getattr(guide, "child", None), JSONGuide)
        self._convert = convert

    def run(self, prompts: Sequence[Prompt], options: Options, told: Told | None) -> list[Any]:
        """Results of `run` for a list of prompts, with fields."""
        scored: dict[tuple[int, int], Generation[Any]] = {}

        def keep(number: int, sample: int, result: Generation[Any]) -> None:
            scored[number, sample] = self.scored(result, options)
            if told is not None:
                told(number, sample, scored[number, sample])

        found = run_together([(self._task, prompt) for prompt in prompts], options, keep)
        if options.search.n == 1:
            return [scored[number, 0] for number in range(len(found))]
        return [[scored[number, sample] for sample in range(len(each))] for number, each in enumerate(found)]

    def scored(self, result: Generation[Any], options: Options) -> Generation[Any]:
        """A result with its fields, and with log-probabilities only where they were asked for."""
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
            place = Place((*before, *result.token_ids[:first]), lead, self._guide, state, self._is_json)
            field = self._of_list(place, text[begin:end])
            if field is None:
                last = max((number for number in range(len(spellings)) if ends[number] < end), default=first)
                field = self._of_tokens(result, range(first, last + 1), text[begin:end])
            found[pointer] = field
        return found

    def _of_list(self, place: Place, chosen: bytes) -> Field | None:
        """The field of one of few values; None where there are many."""
        child = getattr(self._guide, "child", self._guide)
        is_short_list = isinstance(child, ChoiceGuide) and len(child.choices) <= MOST_CHOICES
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
        return Field(self._value(text), shares.get(text, 0.0), alternatives, exact=missing <= MOST_MISSING)

    def _of_tokens(self, result: Generation[Any], numbers: range, chosen: bytes) -> Field:
        """The field of a value of which there are many: how likely its tokens were, one after the other."""
        assert result.logprobs is not None
        assert result.top_logprobs is not None
        total = sum(result.logprobs[number] for number in numbers)
        if not self._is_json and result.score is not None:  # the end of the text too
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
