"""Controls of repetition and length: they narrow what a constraint leaves, and yield where they would leave nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...checks import number, whole
from ...errors import OptionError
from ...guides.protocol import Mask

STRONGEST = 1_000_000
"""The strongest penalty: beyond it logits would no longer be numbers of 32 bits."""
MOST = 2.0
"""The greatest penalty that is subtracted, as OpenAI's interface has it."""


@dataclass(frozen=True, slots=True)
class Controls:
    """Controls of `Options`. The first three mean what they mean in transformers, which counts the prompt in
    as well; the other two what they mean in OpenAI's interface, which counts the output alone.
    """

    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("no_repeat_ngram_size", "min_tokens"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 0))
        meaning = f"a number from {1 / STRONGEST:g} to {STRONGEST:,}; 1 changes nothing"
        if not 1 / STRONGEST <= number(self.repetition_penalty, "repetition_penalty", meaning) <= STRONGEST:
            raise OptionError(f"repetition_penalty={self.repetition_penalty!r}: {meaning}")
        meaning = f"a number from {-MOST:g} to {MOST:g}; 0 changes nothing"
        for name in ("frequency_penalty", "presence_penalty"):
            found = number(getattr(self, name), name, meaning)
            if abs(found) > MOST:
                raise OptionError(f"{name}={getattr(self, name)!r}: {meaning}")
            object.__setattr__(self, name, found)

    @property
    def are_off(self) -> bool:
        """True if they change nothing."""
        return self == _OFF

    def withholds(self, made: int) -> bool:
        """True if a token may be withheld after `made` tokens of output."""
        return self.no_repeat_ngram_size > 0 or made < self.min_tokens

    def may_break(self, made: int, ends: bool) -> bool:
        """True if a token may break one after `made` tokens of output."""
        return made < self.min_tokens if ends else self.no_repeat_ngram_size > 0

    @property
    def change_scores(self) -> bool:
        """True if tokens that were there already get other scores."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    def broken(self, ids: Sequence[int], made: int, token: int, ends: bool) -> frozenset[str]:
        """Which controls a token breaks after `ids`, prompt included, of which `made` are output."""
        early = ends and made < self.min_tokens
        again = not ends and token in repeated(ids, self.no_repeat_ngram_size)
        names = (("min_tokens", early), ("no_repeat_ngram_size", again))
        return frozenset(name for name, is_broken in names if is_broken)

    def narrowed(self, mask: Mask | None, ids: Sequence[int], made: int, size: int, enders: frozenset[int]) -> Mask:
        """A mask without the tokens that are to be withheld; as it was if nothing were left."""
        if mask is None and self.no_repeat_ngram_size == 0:
            return _all_but(size, enders if made < self.min_tokens else frozenset[int]())
        mask = _all_but(size, frozenset[int]()) if mask is None else mask
        return _without(mask, {*repeated(ids, self.no_repeat_ngram_size), *(enders if made < self.min_tokens else ())})

    def penalise(self, scores: Tensor, prompt: Sequence[int], made: Sequence[int]) -> None:
        """Change scores float32 [V] in place: tokens that were there already are less likely.

        prompt, made: the text so far, before and in the output. First scores are times or over the repetition penalty,
        if their token is in either; then the frequency penalty is subtracted for each time that it is in the output,
        and the presence penalty if it is there at all.
        """
        if self.repetition_penalty != 1:
            seen = torch.tensor(sorted({*prompt, *made}), dtype=torch.int64, device=scores.device)
            known = scores[seen]
            scores[seen] = torch.where(known < 0, known * self.repetition_penalty, known / self.repetition_penalty)
        if made and (self.frequency_penalty or self.presence_penalty):
            counts = Counter(made)
            less = [count * self.frequency_penalty + self.presence_penalty for count in counts.values()]
            scores[torch.tensor([*counts], device=scores.device)] -= torch.tensor(less, device=scores.device)


def full_mask(size: int) -> Mask:
    """The mask that allows all of `size` tokens."""
    mask = np.full((size + 31) // 32, 0xFFFFFFFF, np.uint32)
    mask[-1] >>= np.uint32(-size % 32)
    return mask


def _without(mask: Mask, tokens: Iterable[int]) -> Mask:
    """A mask without some tokens; as it was if nothing were left."""
    less = mask.copy()
    for token in tokens:
        less[token >> 5] &= ~np.uint32(1 << (token & 31))
    return less if less.any() else mask


@lru_cache(maxsize=64)
def _all_but(size: int, tokens: frozenset[int]) -> Mask:
    """The mask of all tokens but some, as `_without` has it; the same for all rows and steps, and not to be changed."""
    less = _without(full_mask(size), tokens)
    less.flags.writeable = False
    return less


def repeated(ids: Sequence[int], size: int) -> set[int]:
    """The tokens with which the last `size` tokens would repeat earlier ones; none for size 0.

    ids: those below 0 are no tokens, but the beginning or rows of images
    """
    if size == 0 or len(ids) < size:
        return set()
    if size == 1:
        return {token for token in ids if token >= 0}
    tail, found = ids[len(ids) - size + 1 :], set[int]()
    # Looked for is the last of the tail, by Python's own search, since most places have another token.
    with suppress(ValueError):
        end = size - 2
        while True:
            end = ids.index(tail[-1], end, len(ids) - 1)
            if ids[end - size + 2 : end + 1] == tail:
                found.add(ids[end + 1])
            end += 1
    return {token for token in found if token >= 0}


_OFF = Controls()
