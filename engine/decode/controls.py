"""Changes of logits before a token is chosen: biases, banned tokens, penalties and length controls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ...checks import brief, check_int, check_number, check_text
from ...errors import OptionError
from ...guides.protocol import Mask, mask_of
from ...tokenizers_adapter.marked import token_of
from ..models.protocol import Model

STRONGEST = 1_000_000.0
"""The largest finite bias. A larger one would round float32 logits away."""

Biases = dict[int | str, float]
_MEANING = f"a number from {-STRONGEST:,.0f} to {STRONGEST:,.0f}, or -inf for a token that is never chosen"


class TokenBias:
    """Additive biases by token id (`added`), and tokens that are never chosen (`banned`).

    Biases do not apply to tokens inside the prompt's healed tail, since these repeat the caller's text. `applies` tests
    this.
    """

    __slots__ = ("_moved", "_words", "added", "banned")

    def __init__(self, added: Mapping[int, float], banned: Iterable[int]) -> None:
        self.added = dict(added)
        self.banned = frozenset(banned)
        self._words: dict[int, Mask] = {}
        self._moved: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def add_to(self, scores: Tensor, applies: Callable[[int], bool] | None) -> None:
        """Add the biases to float32 [V] scores in place. applies: selects the tokens, None for all"""
        if applies is not None:
            for token in filter(applies, self.added):
                scores[token] += self.added[token]
            return
        found = self._moved.get(scores.device)
        if found is None:
            ids, values = torch.tensor([*self.added]), torch.tensor([*self.added.values()])
            found = self._moved[scores.device] = ids.to(scores.device), values.to(scores.device)
        scores[found[0]] += found[1]

    def allowed(self, mask: Mask, enders: frozenset[int], applies: Callable[[int], bool] | None) -> Mask:
        """Return a mask without the banned tokens.

        If that leaves nothing, and only ending tokens were allowed, the mask is returned unchanged.
        enders: tokens that end the text
        """
        if applies is None:
            words = self._words.get(len(mask))
            if words is None:
                words = self._words[len(mask)] = mask_of(self.banned, 32 * len(mask))
        else:
            words = mask_of(filter(applies, self.banned), 32 * len(mask))
        less = mask & ~words
        return less if less.any() or (mask & ~mask_of(enders, 32 * len(mask))).any() else mask


NO_BIAS = TokenBias({}, ())


def biases_of(option: Any) -> Biases:
    """Check a caller's biases without a model. Raises OptionError."""
    if option is None:
        return {}
    if not isinstance(option, Mapping):
        raise OptionError(
            f"logit_bias={brief(option)}: expected a dict of numbers by token id or text, such as {{' the': -5}}"
        )
    return {_key(key): _value(key, value) for key, value in cast("Mapping[Any, Any]", option).items()}


def bias_of(model: Model, biases: Biases) -> TokenBias:
    """Resolve biases to token ids. Raises OptionError for an unknown token, and for a token that is given twice.

    A text stands for all tokens with exactly these bytes. A special token has no bytes, and is given by its name in the
    tokenizer.
    """
    if not biases:
        return NO_BIAS
    size = model.vocabulary.size
    texts = _tokens_of(model, [key for key in biases if isinstance(key, str)])
    found: dict[int, float] = {}
    keys: dict[int, int | str] = {}
    for key, value in biases.items():
        if not isinstance(key, str) and key >= size:
            raise OptionError(f"logit_bias: {key} is not a token id; ids are 0 to {size - 1}")
        for token in texts[key] if isinstance(key, str) else (key,):
            if token in found:
                raise OptionError(f"logit_bias: {keys[token]!r} and {key!r} are both token {token}; give one of them")
            found[token], keys[token] = value, key
    added = {token: value for token, value in found.items() if value not in (0, -math.inf)}
    return TokenBias(added, [token for token, value in found.items() if value == -math.inf])


def _tokens_of(model: Model, texts: list[str]) -> dict[str, list[int]]:
    """Return the tokens that spell each text."""
    wanted: dict[bytes, list[int]] = {text.encode(): [] for text in texts}
    if wanted:
        for token, spelt in enumerate(model.vocabulary.tokens):
            if spelt is not None and spelt in wanted:
                wanted[spelt].append(token)
    found = {text: wanted[text.encode()] or _special(model, text) for text in texts}
    for text, tokens in found.items():
        if not tokens:
            raise OptionError(
                f"logit_bias: {brief(text)} is not one token of the vocabulary; give texts of single tokens, including "
                "their spaces, or token ids (for a longer text model.tokenizer.encode(text))"
            )
    return found


def _special(model: Model, text: str) -> list[int]:
    """Return the special token that the tokenizer writes as this text, as a list of at most one id."""
    token, vocabulary = token_of(model.tokenizer, text), model.vocabulary
    is_empty = token is not None and token < vocabulary.size and vocabulary.tokens[token] is None
    return [token] if token is not None and is_empty else []


def _key(key: Any) -> int | str:
    if isinstance(key, str):
        text = check_text(key, "logit_bias: a key")
        if text:
            return text
        raise OptionError('logit_bias: "" is no token; give texts of single tokens, or token ids')
    return check_int(key, "logit_bias: a key", 0)


def _value(key: Any, value: Any) -> float:
    found = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if found != -math.inf and not abs(found) <= STRONGEST:
        raise OptionError(f"logit_bias[{brief(key)}]={brief(value)}: {_MEANING}")
    return found


MAX_PENALTY = 1_000_000
"""The largest penalty. A larger one would overflow float32 logits."""
MAX_ADDED_PENALTY = 2.0
"""The largest frequency or presence penalty, as in OpenAI's API."""


@dataclass(frozen=True, slots=True)
class Controls:
    """Repetition and length controls of `Options`.

    The first three have the meaning of transformers and count the prompt too. The penalties that are subtracted have
    the meaning of OpenAI's API and count only the output.
    """

    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("no_repeat_ngram_size", "min_tokens"):
            object.__setattr__(self, name, check_int(getattr(self, name), name, 0))
        meaning = f"a number from {1 / MAX_PENALTY:g} to {MAX_PENALTY:,}; 1 changes nothing"
        if not 1 / MAX_PENALTY <= check_number(self.repetition_penalty, "repetition_penalty", meaning) <= MAX_PENALTY:
            raise OptionError(f"repetition_penalty={self.repetition_penalty!r}: {meaning}")
        meaning = f"a number from {-MAX_ADDED_PENALTY:g} to {MAX_ADDED_PENALTY:g}; 0 changes nothing"
        for name in ("frequency_penalty", "presence_penalty"):
            found = check_number(getattr(self, name), name, meaning)
            if abs(found) > MAX_ADDED_PENALTY:
                raise OptionError(f"{name}={getattr(self, name)!r}: {meaning}")
            object.__setattr__(self, name, found)

    @property
    def are_off(self) -> bool:
        """True if no control changes anything."""
        return self == _OFF

    def withholds(self, count: int) -> bool:
        """Test whether a control may withhold a token after `count` output tokens."""
        return self.no_repeat_ngram_size > 0 or count < self.min_tokens

    def may_break(self, count: int, ends: bool) -> bool:
        """Test whether a token may break a control after `count` output tokens. ends: the token ends the text"""
        return count < self.min_tokens if ends else self.no_repeat_ngram_size > 0

    @property
    def change_scores(self) -> bool:
        """True if a penalty changes the scores of earlier tokens."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    def broken(self, ids: Sequence[int], count: int, token: int, ends: bool) -> frozenset[str]:
        """Return the controls that a token breaks after `ids`, which include the prompt. count: output tokens among
        `ids`"""
        early = ends and count < self.min_tokens
        repeats = not ends and token in repeated(ids, self.no_repeat_ngram_size)
        names = (("min_tokens", early), ("no_repeat_ngram_size", repeats))
        return frozenset(name for name, is_broken in names if is_broken)

    def narrowed(self, mask: Mask | None, ids: Sequence[int], count: int, size: int, enders: frozenset[int]) -> Mask:
        """Return a mask without withheld tokens, or the mask itself if nothing would be left."""
        if mask is None and self.no_repeat_ngram_size == 0:
            return _all_but(size, enders if count < self.min_tokens else frozenset[int]())
        mask = _all_but(size, frozenset[int]()) if mask is None else mask
        return _without(mask, {*repeated(ids, self.no_repeat_ngram_size), *(enders if count < self.min_tokens else ())})

    def penalise(self, scores: Tensor, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Apply penalties to float32 [V] scores in place.

        prompt, output: tokens before the output, and tokens of the output
        The repetition penalty multiplies negative scores and divides others, for tokens in `prompt` or `output`. Then
        the frequency penalty is subtracted once per occurrence in `output`, and the presence penalty once for any
        occurrence.
        """
        if self.repetition_penalty != 1:
            seen = torch.tensor(sorted({*prompt, *output}), dtype=torch.int64, device=scores.device)
            known = scores[seen]
            scores[seen] = torch.where(known < 0, known * self.repetition_penalty, known / self.repetition_penalty)
        if output and (self.frequency_penalty or self.presence_penalty):
            counts = Counter(output)
            less = [count * self.frequency_penalty + self.presence_penalty for count in counts.values()]
            scores[torch.tensor([*counts], device=scores.device)] -= torch.tensor(less, device=scores.device)


def full_mask(size: int) -> Mask:
    """Return the mask that allows all `size` tokens."""
    mask = np.full((size + 31) // 32, 0xFFFFFFFF, np.uint32)
    mask[-1] >>= np.uint32(-size % 32)
    return mask


def _without(mask: Mask, tokens: Iterable[int]) -> Mask:
    """Return a mask without some tokens, or the mask itself if nothing would be left."""
    less = mask.copy()
    for token in tokens:
        less[token >> 5] &= ~np.uint32(1 << (token & 31))
    return less if less.any() else mask


@lru_cache(maxsize=64)
def _all_but(size: int, tokens: frozenset[int]) -> Mask:
    """Return a read-only mask of all tokens but some, shared between rows and steps. See `_without`."""
    less = _without(full_mask(size), tokens)
    less.flags.writeable = False
    return less


def repeated(ids: Sequence[int], size: int) -> set[int]:
    """Return the tokens that would repeat an earlier n-gram of `size` tokens. Size 0 gives an empty set.

    ids: negative ids are no tokens, but BEGIN or rows of images and audio
    """
    if size == 0 or len(ids) < size:
        return set()
    if size == 1:
        return {token for token in ids if token >= 0}
    tail, found = ids[len(ids) - size + 1 :], set[int]()
    # Search for the tail's last token with `index`, since most positions have another token.
    with suppress(ValueError):
        end = size - 2
        while True:
            end = ids.index(tail[-1], end, len(ids) - 1)
            if ids[end - size + 2 : end + 1] == tail:
                found.add(ids[end + 1])
            end += 1
    return {token for token in found if token >= 0}


_OFF = Controls()
