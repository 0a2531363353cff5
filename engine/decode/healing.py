"""Healing: a prompt that ends inside what would have been one token is cut back, and its end generated again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ...guides import FreeGuide
from ..models.protocol import Model
from ..prompts.encoding import Ids
from .guide_cache import GuideCache


@dataclass(frozen=True, slots=True)
class HealedPrompt:
    """The beginning of a text.

    prompt: what the model reads; constraint: what it then may say, None for anything
    tail: how many bytes of the prompt the constraint has before its own text
    is_free: whether anything may follow the tail
    source: what an encoder reads apart from the prompt, which is then what the decoder starts from
    held: what the prompt's images are, held for as long as their rows may be read
    """

    prompt: Ids
    guide_cache: GuideCache | None
    tail: int = 0
    is_free: bool = False
    source: Ids = ()
    held: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        """The most tokens it can take up to where the output begins."""
        return len(self.prompt) + self.tail


def healed(model: Model, prompt: Ids, guide_cache: GuideCache | None, most: int | None = None) -> HealedPrompt | None:
    """The prompt without the tokens that a token of the output may cross into; None if there are none.

    A prompt that is cut away completely begins with the token that begins a text (BOS), as an empty one does;
    where the tokenizer has none, its first token stays. A constraint by tokens rather than by bytes, and a model
    that reads its prompt apart from its output, have nothing to heal.
    most: how many bytes at its end may be cut away; None for all
    """
    behind = _free(model) if guide_cache is None else guide_cache
    if behind.crossings is None or getattr(model, "is_encoder_decoder", False):
        return None
    kept = behind.crossings.cut(prompt)
    while most is not None and len(model.vocabulary.decode(prompt[kept:])) > most:
        kept += 1
    begin: int | None = getattr(model.tokenizer, "bos_token_id", None)
    first = prompt[:kept] or (prompt[:1] if begin is None else (begin,))
    tail = _tail(model, prompt, kept)
    return HealedPrompt(first, behind.behind(tail), len(tail), guide_cache is None) if tail else None


def is_known(model: Model, prompt: Ids, guide_cache: GuideCache, *, heal: bool) -> bool:
    """True if the beginning of a text, and its number of tokens, was found out before: see `GuideCache.knows`."""
    if getattr(model, "is_encoder_decoder", False):
        return False
    if not heal:
        return guide_cache.knows(b"")
    kept = guide_cache.known_cut(prompt)
    return kept is not None and guide_cache.knows(b"") and guide_cache.knows(_tail(model, prompt, kept))


def _tail(model: Model, prompt: Ids, kept: int) -> bytes:
    """The end that is generated again where so many tokens of a prompt are kept, or its first where there is no BOS."""
    has_begin = getattr(model.tokenizer, "bos_token_id", None) is not None
    return model.vocabulary.decode(prompt[kept if kept or has_begin else 1 :])


def _free(model: Model) -> GuideCache:
    """The cache that stands for no constraint: one for each model, so that what is known of prompts' ends is kept."""
    known = _FREE.get(model)
    if known is None:
        known = _FREE[model] = GuideCache(FreeGuide(model.vocabulary), model.sparse_head_limit)
    return known


_FREE: WeakKeyDictionary[Any, GuideCache] = WeakKeyDictionary()
