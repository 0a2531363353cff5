"""Controls of repetition and length: they narrow what a constraint leaves, and yield where they would leave nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Controls:
    """What `Options` says of them; they mean what they mean in transformers, which counts the prompt in as well."""

    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    min_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("no_repeat_ngram_size", "min_tokens"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 0))
        meaning = f"a number from {1 / STRONGEST:g} to {STRONGEST:,}; 1 changes nothing"
        if not 1 / STRONGEST <= number(self.repetition_penalty, "repetition_penalty", meaning) <= STRONGEST:
            raise OptionError(f"repetition_penalty={self.repetition_penalty!r}: {meaning}")

    @property
    def are_off(self) -> bool:
        """Whether they change nothing."""
        return self == _OFF

    def withholds(self, made: int) -> bool:
        """Whether a token may be withheld after `made` tokens of output."""
        return self.no_repeat_ngram_size > 0 or made < self.min_tokens

    def may_break(self, made: int, ends: bool) -> bool:
        """Whether a token may break one after `made` tokens of output."""
        return made < self.min_tokens if ends else self.no_repeat_ngram_size > 0

    def broken(self, ids: Sequence[int], made: int, token: int, ends: bool) -> frozenset[str]:
        """Which controls a token breaks after `ids`, prompt included, of which `made` are output."""
        early = ends and made < self.min_tokens
        again = not ends and token in repeated(ids, self.no_repeat_ngram_size)
        names = (("min_tokens", early), ("no_repeat_ngram_size", again))
        return frozenset(name for name, is_broken in names if is_broken)

    def narrowed(self, mask: Mask | None, ids: Sequence[int], made: int, size: int, enders: frozenset[int]) -> Mask:
        """A mask without the tokens that are to be withheld; as it was if nothing were left."""
        if mask is None and self.no_repeat_ngram_size == 0:
            return _all_but(size, enders if made < self.min_tokens else frozenset())
        mask = _all_but(size, frozenset()) if mask is None else mask
        return _without(mask, {*repeated(ids, self.no_repeat_ngram_size), *(enders if made < self.min_tokens else ())})

    def penalised(self, scores: Tensor, texts: Sequence[Sequence[int]]) -> Tensor:
        """Scores float32 [rows, V] in which tokens of the row's text are less likely: times or over the penalty."""
        found = scores.clone()
        for row, ids in zip(found, texts, strict=True):
            seen = torch.tensor(sorted(set(ids)), device=scores.device)
            known = row[seen]
            row[seen] = torch.where(known < 0, known * self.repetition_penalty, known / self.repetition_penalty)
        return found


def _without(mask: Mask, tokens: Iterable[int]) -> Mask:
    """A mask without some tokens; as it was if nothing were left."""
    less = mask.copy()
    for token in tokens:
        less[token >> 5] &= ~np.uint32(1 << (token & 31))
    return less if less.any() else mask


@lru_cache(maxsize=64)
def _all_but(size: int, tokens: frozenset[int]) -> Mask:
    """The mask of all tokens but some, as `_without` has it; the same for all rows and steps, and not to be changed."""
    mask = np.full((size + 31) // 32, 0xFFFFFFFF, np.uint32)
    mask[-1] >>= np.uint32(-size % 32)
    less = _without(mask, tokens)
    less.flags.writeable = False
    return less


def repeated(ids: Sequence[int], size: int) -> set[int]:
    """The tokens with which the last `size` tokens would repeat earlier ones; none for size 0."""
    if size == 0:
        return set()
    tail = ids[len(ids) - size + 1 :]
    return {ids[i + size - 1] for i in range(len(ids) - size + 1) if ids[i : i + size - 1] == tail}


_OFF = Controls()
