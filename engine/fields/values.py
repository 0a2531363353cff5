"""The values that a constraint leaves at one place of a text, and how likely each is, whatever tokens spell it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...guides.healing import AlignedGuide
from ...guides.protocol import DEAD, ByteGuide, Mask, mask_of, tokens_of
from ...tokenizers_adapter import Vocabulary
from ..decode.guide_cache import GuideCache
from ..decode.requests import Job
from ..decode.sequence import SequenceState
from ..models.protocol import Model
from ..options import MOST_BEST, Options
from ..prompts.given import Prompt
from ..results import Generation
from ..running import run_together
from .places import is_decided, literal_at

MOST_ALTERNATIVES = 128
"""Beginnings of values that are followed side by side: beyond so many a value is none of a list."""
MOST_TRIED = 1000
"""Places at which all bytes are tried, to find the values."""
LEAST = 1e-5
"""Paths of tokens that are less likely are not followed; what they come to together is left out."""
MOST_PATHS = 2000
ROWS = 64


_NO_VALUE = b" \t\n\r]"
"""Bytes with which no value begins: white space, and the end of an array where an item could stand."""


class Place(NamedTuple):
    """The place of a value. prompt: the tokens before it that hold none of it; lead: bytes that come between

    guide, state: what may follow the lead; is_json: whether the value is a part of a JSON text, else the whole text
    """

    prompt: tuple[int, ...]
    lead: bytes
    guide: ByteGuide
    state: int
    is_json: bool

    def is_full(self, text: bytes) -> bool:
        """True if the value is there in full, whatever follows."""
        return self.is_json and is_decided(text)

    def begins(self, text: bytes) -> bool:
        """True where a text may begin with the value, not with white space before one or the end of its array."""
        return not (self.is_json and text[:1] in _NO_VALUE and text)

    def value(self, text: bytes) -> bytes:
        """The value's own bytes of a text that has it in full."""
        return text[: literal_at(text, 0)] if self.is_json else text


def listed(place: Place) -> set[bytes] | None:
    """All values that may stand there, where these are few; None for others."""
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
            if len(left) + len(found) > MOST_ALTERNATIVES:
                return None
        if tried > MOST_TRIED:
            return None
    return found


class TokenPath(NamedTuple):
    """Tokens behind a place's prompt, the state after them, their bytes, and how likely they are."""

    tokens: tuple[int, ...]
    state: int
    text: bytes
    chance: float


def chances(model: Model, place: Place) -> tuple[dict[bytes, float], float]:
    """The probability of each value, summed over all ways to spell it, and what is missing to 1.

    At each token the allowed ones share the probability, as in masked sampling, but for those that would put white
    space before the value, or end its array.
    """
    start: Any = _Beginning(place.guide, place.state)
    guide: Any = AlignedGuide(start, place.lead) if place.lead else start
    lead, tokens, eos = len(place.lead), model.vocabulary.tokens, frozenset(model.vocabulary.eos_ids)
    found: defaultdict[bytes, float] = defaultdict(float)
    open_: list[TokenPath] = [TokenPath((), guide.start, b"", 1.0)]
    missing, followed = 0.0, 0
    while open_:
        open_.sort(key=lambda path: -path.chance)
        room = MOST_PATHS - followed
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
    """For each prompt how tokens share the probability that are allowed behind it.

    What ends a text is compared with the other tokens one by one, since of an end that was chosen only its own share
    is told. Nothing is read where all tokens that are allowed end the text, or there is only one.
    """
    eos = frozenset(model.vocabulary.eos_ids)
    asked: list[tuple[int, int | None, _Step]] = []
    others: list[list[int]] = []
    for number, several in enumerate(allowed):
        others.append([token for token in several if token not in eos])
        if others[-1] and len(several) > 1:
            ends = [token for token in several if token in eos]
            if len(others[-1]) > 1:
                asked.append((number, None, _Step(model, others[-1])))
            asked += [(number, end, _Step(model, [*others[-1], end])) for end in ends]
    best = min(MOST_BEST, model.vocabulary.size)
    options = Options(max_tokens=1, logprobs=best, draft=False, heal=False, batch_size=ROWS, progress=False)
    answers = run_together([(step, prompts[number] or "") for number, _, step in asked], options)
    shares: list[dict[int, float]] = [{each[0]: 1.0} if len(each) == 1 else {} for each in others]
    odds: list[dict[int, float]] = [{} for _ in allowed]
    for (number, end, _), result in zip(asked, answers, strict=True):
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
    """Tells how some tokens share the probability behind a prompt: a `Task`."""

    text_prefix = b""

    def __init__(self, model: Model, allowed: Sequence[int]) -> None:
        self.model = model
        self._guide = _OneToken(model.vocabulary, allowed)

    def job(self, prompt: Prompt, include: Any = (), *, continues: bool = False) -> Job:
        """The prompt, behind which one of the tokens comes."""
        return Job(prompt, GuideCache(self._guide, self.model.sparse_head_limit))

    def result(self, sequence: SequenceState, options: Options) -> Generation[dict[int, float]]:
        """The shares of the tokens, or that of the end alone where it was chosen."""
        if sequence.tokens:
            shares = {token: math.exp(logprob) for token, logprob in sequence.best[0][0]}
        else:
            shares = dict.fromkeys(self._guide.ends, math.exp(sequence.end_score))
        return Generation("", shares, (), "complete")


class _Beginning:
    """A guide that begins in another state."""

    def __init__(self, guide: ByteGuide, state: int) -> None:
        self.vocabulary, self.start = guide.vocabulary, state
        self.mask, self.advance, self.is_accepting = guide.mask, guide.advance, guide.is_accepting
        self.distance, self.read = guide.distance, guide.read


class _OneToken:
    """One of some tokens, and then the end: asks the model for no more than a step."""

    start = 0

    def __init__(self, vocabulary: Vocabulary, allowed: Sequence[int]) -> None:
        self.vocabulary = vocabulary
        self._allowed = frozenset(allowed)
        self._masks = mask_of(allowed, vocabulary.size), mask_of(vocabulary.eos_ids, vocabulary.size)
        self.ends = [token for token in allowed if token in vocabulary.eos_ids]

    def mask(self, state: int) -> Mask:
        """The tokens, or what ends a text."""
        return self._masks[state] if state != DEAD else np.zeros_like(self._masks[0])

    def advance(self, state: int, token: int) -> int:
        """The state after a token; what ends the text leaves it as it is."""
        if token in self.vocabulary.eos_ids:
            return state if self.is_accepting(state) else DEAD
        return 1 if state == 0 and token in self._allowed else DEAD

    def is_accepting(self, state: int) -> bool:
        """True if the text may end."""
        return state == 1 or (state == 0 and bool(self.ends))

    def distance(self, state: int) -> int:
        """Tokens to the end."""
        return 0 if self.is_accepting(state) else 1
