"""Biases of tokens: what a caller adds to their scores, and tokens that are never chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor

from ...checks import brief, text_of, whole
from ...errors import OptionError
from ...guides.protocol import Mask, mask_of
from ...tokenizers_adapter.marked import token_of
from ..models.protocol import Model

STRONGEST = 1_000_000.0
"""The strongest bias that is a number: beyond it the logits of 32 bits below it would be lost in rounding."""

Given = dict[int | str, float]
_MEANING = f"a number from {-STRONGEST:,.0f} to {STRONGEST:,.0f}, or -inf for a token that is never chosen"


class TokenBias:
    """added: what is added to scores, by token id; banned: the tokens that are never chosen.

    Tokens within the end of a prompt that is healed were chosen by the caller, and have no bias: `applies` tells.
    """

    __slots__ = ("_moved", "_words", "added", "banned")

    def __init__(self, added: Mapping[int, float], banned: Iterable[int]) -> None:
        self.added = dict(added)
        self.banned = frozenset(banned)
        self._words: dict[int, Mask] = {}
        self._moved: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def add_to(self, scores: Tensor, applies: Callable[[int], bool] | None) -> None:
        """Add the biases to scores float32 [V], in place. applies: to which tokens, None for all."""
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
        """A mask without the banned tokens; nothing is left where no other may follow, but for the end of the text.

        enders: the tokens that end it
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


def biases_of(given: Any) -> Given:
    """A caller's biases, checked as far as that goes without a model. Raises OptionError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionError(f"logit_bias={brief(given)}: a dict of numbers by token id or text, such as {{' the': -5}}")
    return {_key(key): _value(key, value) for key, value in cast("Mapping[Any, Any]", given).items()}


def bias_of(model: Model, given: Given) -> TokenBias:
    """The biases of a model's tokens. Raises OptionError for what is none of its tokens, and for one given twice.

    A text stands for all tokens that spell just this, byte for byte; a special token, which spells nothing, may be
    written as its tokenizer writes it.
    """
    if not given:
        return NO_BIAS
    size = model.vocabulary.size
    texts = _tokens_of(model, [key for key in given if isinstance(key, str)])
    found: dict[int, float] = {}
    keys: dict[int, int | str] = {}
    for key, value in given.items():
        if not isinstance(key, str) and key >= size:
            raise OptionError(f"logit_bias: {key} is not a token id; they go from 0 to {size - 1}")
        for token in texts[key] if isinstance(key, str) else (key,):
            if token in found:
                raise OptionError(f"logit_bias: {keys[token]!r} and {key!r} are both token {token}; give one of them")
            found[token], keys[token] = value, key
    added = {token: value for token, value in found.items() if value not in (0, -math.inf)}
    return TokenBias(added, [token for token, value in found.items() if value == -math.inf])


def _tokens_of(model: Model, texts: list[str]) -> dict[str, list[int]]:
    """The tokens that spell each of some texts."""
    wanted: dict[bytes, list[int]] = {text.encode(): [] for text in texts}
    if wanted:
        for token, spelt in enumerate(model.vocabulary.tokens):
            if spelt is not None and spelt in wanted:
                wanted[spelt].append(token)
    found = {text: wanted[text.encode()] or _special(model, text) for text in texts}
    for text, tokens in found.items():
        if not tokens:
            raise OptionError(
                f"logit_bias: {brief(text)} is not one token of the vocabulary; give texts of single tokens, where "
                "blanks count, or token ids (those of a longer text are model.tokenizer.encode(text))"
            )
    return found


def _special(model: Model, text: str) -> list[int]:
    """The token without bytes that a tokenizer writes as a text."""
    token, vocabulary = token_of(model.tokenizer, text), model.vocabulary
    is_empty = token is not None and token < vocabulary.size and vocabulary.tokens[token] is None
    return [token] if token is not None and is_empty else []


def _key(key: Any) -> int | str:
    if isinstance(key, str):
        text = text_of(key, "logit_bias: a key")
        if text:
            return text
        raise OptionError('logit_bias: "" is no token; give texts of single tokens, or token ids')
    return whole(key, "logit_bias: a key", 0)


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
