"""Guides in llama-cpp-python: a logits processor for its `Llama`, and a sampler for chains of llama.cpp.

llama.cpp calls both from C, where Python drops exceptions. So arguments are checked at construction. Later errors end
the text at once, are kept as `failure`, and `check` raises them.
"""
# Type checks run without llama-cpp-python.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..checks import shown
from ..errors import OptionError
from ..guides.protocol import Guide
from ..kernels.logits.mask import unpack_mask
from ..tokenizers_adapter import Vocabulary
from .bitmask import guide_of
from .hosts import interface
from .rows import TokenRows, check_width
from .session import Session, token_mask

TRIED = "llama-cpp-python 0.3.36"

_NEEDED = [
    "Llama",
    "Llama.model",
    "LogitsProcessorList",
    "StoppingCriteriaList",
    "llama_model_get_vocab",
    "llama_sampler",
    "llama_sampler_chain_add",
    "llama_sampler_i",
    "llama_sampler_i_accept",
    "llama_sampler_i_apply",
    "llama_sampler_i_clone",
    "llama_sampler_i_free",
    "llama_sampler_i_reset",
    "llama_sampler_init",
    "llama_token_data",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
]
_HOST = interface("llama-cpp-python", "llama-cpp-python", TRIED, {"llama_cpp": _NEEDED})
LogitsProcessorList: Any = _HOST["LogitsProcessorList"]

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data of llama.cpp."""


def vocabulary_for(llama: Any) -> Vocabulary:
    """Return the vocabulary of a Llama's file, as wide as its logits, with all tokens at which llama.cpp ends a text.

    Raises VocabularyError for a vocabulary that cannot be read, OptionError for other objects than a Llama.
    """
    size, ends = _ends_of(llama)
    return Vocabulary.from_tokenizer(llama.model_path, size=size, eos_ids=ends or None)


class _Failure:
    """A stored error, from a place where none can be raised."""

    failure: BaseException | None = None

    def check(self, *_: object) -> bool:
        """Raise the stored error; return False if there is none. A stopping criterion of llama-cpp-python."""
        if self.failure is not None:
            raise self.failure
        return False


class GuideLogitsProcessor(LogitsProcessorList, _Failure):
    """A logits processor, and a list of it, that constrains a Llama to a guide until a text is complete.

        processor = GuideLogitsProcessor(guide, llama, max_tokens=100)
        llama(prompt, max_tokens=100, logits_processor=processor, stopping_criteria=processor.stopping_criteria)

    max_tokens: the Llama's; every text is then complete within it, and not cut short
    One processor serves one text; call `reset()` before another. Works with draft models and with `logit_bias`. If a
    call takes no stopping criteria, such as a chat completion, call `check()` after it.
    Raises OptionError for other objects than guides, and for another vocabulary than the Llama's; BudgetError if no
    text is so short.
    """

    def __init__(self, guide: Guide, llama: Any, *, max_tokens: int | None = None) -> None:
        super().__init__([self._process])
        check_ends(guide_of(guide).vocabulary, llama)
        self._rows = TokenRows([guide], max_tokens, "max_tokens", are_chosen=True)
        self._ends_mask = token_mask(guide.vocabulary, frozenset(guide.vocabulary.eos_ids))
        self._is_checked = False
        self.reset()

    @property
    def stopping_criteria(self) -> Any:
        """Stopping criteria that raise stored errors in the caller of the Llama."""
        self._is_checked = True
        return _HOST["StoppingCriteriaList"]([self.check])

    def extend(self, others: Any) -> Self:  # type: ignore[override]
        """Extend the list, and return it: with `logit_bias` the Llama uses the result."""
        super().extend(others)
        return self

    def reset(self) -> None:
        """Prepare for another text."""
        del self[1:]
        self._rows.reset()
        self._prompt: int | None = None
        self._length = 0
        self.failure = None

    def _process(self, input_ids: NDArray[np.intc], scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores float32 [V], with -inf in place for tokens that may not follow the tokens int32 [n]."""
        try:
            self.check()
            _keep_only(scores, self._mask(np.asarray(input_ids), len(scores)))
            self._rows.check(scores.max(keepdims=True))
        except BaseException as error:
            self.failure = error
            _keep_only(scores, self._ends_mask)
            scores[list(self._rows.guides[0].vocabulary.eos_ids)] = 0  # where they would be -inf too
            if not self._is_checked:
                raise
        return scores

    def _mask(self, ids: NDArray[np.intc], width: int) -> NDArray[np.int32]:
        """Return the mask of the next token. Each call chooses one token, so later ids are drafts."""
        if self._prompt is None:
            self._prompt = len(ids)
        length = self._prompt + self._length
        if len(ids) < length:
            raise OptionError(
                "this logits processor has seen more tokens than the Llama: it serves one text; make a new one for "
                "each text, or call its reset() in between"
            )
        mask = self._rows.masks(ids[None, :length], (1, width))[0]
        self._length += 1
        return mask


class GuideSampler(_Failure):
    """A sampler that keeps only the tokens that a guide allows; the first in a chain of llama.cpp.

        sampler = GuideSampler(guide, llama)
        sampler.add_to(chain)

    The chain owns its samplers, and clones of the chain are independent. Call `check()` after generation.
    max_tokens: the token limit within which the text is to be complete
    Raises OptionError for other objects than guides, and for another vocabulary; BudgetError if no text is so short.
    """

    def __init__(self, guide: Guide, llama: Any, *, max_tokens: int | None = None) -> None:
        check_ends(guide_of(guide).vocabulary, llama)
        self.session = Session(guide, max_tokens=max_tokens)

    def add_to(self, chain: Any) -> None:
        """Append this sampler to a chain: a llama_sampler_p, or a LlamaSampler of llama-cpp-python.

        Raises OptionError for other objects.
        """
        pointer = getattr(chain, "sampler", chain)
        if not isinstance(pointer, _POINTER) or not pointer:
            raise OptionError(
                f"{shown(chain)} is not a chain of samplers; give a llama_sampler_p, or a LlamaSampler of "
                "llama-cpp-python"
            )
        _HOST["llama_sampler_chain_add"](pointer, _sampler_of(self))

    def fork(self) -> GuideSampler:
        """Return an independent copy at the same place."""
        other = copy(self)
        other.session = self.session.fork()
        return other

    def accept(self, token: int) -> None:
        """Accept a token. One that is not allowed is an error; tokens after the end are ignored."""
        if not self.session.ended and not self.session.accept(token):
            raise OptionError(
                f"token {token} was chosen, which {self.session!r} does not allow; put the GuideSampler first in its "
                "chain, and use a chain for one text, or reset it in between"
            )

    def reset(self) -> None:
        """Restart at the beginning."""
        self.session.reset()
        self.failure = None

    def apply(self, candidates: Any) -> None:
        """Keep the candidates that are allowed: a llama_token_data_array, changed in place.

        Raises OptionError if there are none.
        """
        items = _items(candidates)
        allowed = items[_allowed(self.session.mask(), items["id"])]
        if not (allowed["logit"] > -np.inf).any():
            raise OptionError(
                f"none of {len(items):,} candidates is allowed by {self.session!r} and has a score above -inf; put the "
                "GuideSampler first in its chain"
            )
        items[: len(allowed)] = allowed
        candidates.size, candidates.selected = len(allowed), -1

    def guard(self, do: Callable[[], None], candidates: Any = None) -> None:
        """Run a callback of llama.cpp. After an error, which is stored, only the end of the text can be chosen."""
        try:
            if self.failure is None:
                do()
        except BaseException as error:
            self.failure = error
        if self.failure is not None and candidates is not None:
            items = _items(candidates)
            vocabulary = self.session.guide.vocabulary
            ends = _allowed(token_mask(vocabulary, frozenset(vocabulary.eos_ids)), items["id"])
            items["logit"] = np.where(ends, np.float32(0), np.float32(-np.inf))


def check_ends(vocabulary: Vocabulary, llama: Any) -> None:
    """Raise OptionError if a guide's vocabulary is too wide for a Llama, or has other end-of-text tokens."""
    size, ends = _ends_of(llama)
    check_width(vocabulary, size)
    eos = set(vocabulary.eos_ids)
    extra = sorted(eos - set(ends))
    extra += [end for end in ends if end < vocabulary.size and end not in eos and vocabulary.tokens[end] is not None]
    if extra:
        raise OptionError(
            f"llama.cpp ends texts of this model at the tokens {ends}, and the guide's vocabulary at "
            f"{list(vocabulary.eos_ids)}; make the guide for adapters.llama_cpp.vocabulary_for(llama)"
        )


_END_TOKENS: WeakKeyDictionary[Any, tuple[int, list[int]]] = WeakKeyDictionary()


def _ends_of(llama: Any) -> tuple[int, list[int]]:
    """Return a Llama's number of tokens, and those at which llama.cpp ends a text. Cached: each token takes a call."""
    if not isinstance(llama, _HOST["Llama"]):
        raise OptionError(f"{shown(llama)} is not a model of llama-cpp-python; give a llama_cpp.Llama")
    if llama.model is None:  # llama.cpp would read a closed model
        raise OptionError("this Llama is closed; load the model again")
    found = _END_TOKENS.get(llama)
    if found is None:
        vocab = _HOST["llama_model_get_vocab"](llama.model)
        size, is_end = int(_HOST["llama_vocab_n_tokens"](vocab)), _HOST["llama_vocab_is_eog"]
        found = _END_TOKENS[llama] = size, [token for token in range(size) if is_end(vocab, token)]
    return found


def _keep_only(scores: NDArray[np.float32], mask: NDArray[Any]) -> None:
    """Set the scores that a mask does not allow to -inf, in place; any stride."""
    known = min(len(scores), 32 * len(mask))
    scores[:known][~unpack_mask(mask.view(np.uint32), known)] = -np.inf
    scores[known:] = -np.inf


def _allowed(mask: NDArray[np.uint32], ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return for each token whether a mask allows it."""
    allowed = np.zeros(len(ids), np.bool_)
    known = ids < 32 * len(mask)
    allowed[known] = mask[ids[known] >> 5] >> (ids[known] & 31).astype(np.uint32) & 1
    return allowed


def _items(candidates: Any) -> NDArray[Any]:
    """Return a view of the candidates in llama.cpp's memory."""
    memory = (_HOST["llama_token_data"] * candidates.size).from_address(ctypes.addressof(candidates.data.contents))
    return np.frombuffer(memory, _CANDIDATE)


# Samplers owned by llama.cpp, by their context number, until it frees them
_SAMPLERS: dict[int, GuideSampler] = {}
_NUMBERS = count(1)


def _sampler_of(sampler: GuideSampler) -> Any:
    """Return a llama_sampler_p for a chain, which frees it."""
    number = next(_NUMBERS)
    _SAMPLERS[number] = sampler
    return _HOST["llama_sampler_init"](ctypes.byref(_INTERFACE), number)


def _sampler_at(pointer: Any) -> GuideSampler:
    return _SAMPLERS[pointer.contents.ctx]


def _accept(pointer: Any, token: int) -> None:
    sampler = _sampler_at(pointer)
    sampler.guard(lambda: sampler.accept(token))


def _apply(pointer: Any, candidates: Any) -> None:
    sampler = _sampler_at(pointer)
    sampler.guard(lambda: sampler.apply(candidates.contents), candidates.contents)


def _reset(pointer: Any) -> None:
    _sampler_at(pointer).reset()


def _clone(pointer: int) -> int:
    sampler = _SAMPLERS[ctypes.cast(pointer, _POINTER).contents.ctx]
    return ctypes.cast(_sampler_of(sampler.fork()), ctypes.c_void_p).value or 0


def _free(pointer: Any) -> None:
    del _SAMPLERS[pointer.contents.ctx]


_POINTER: Any = ctypes.POINTER(_HOST["llama_sampler"])
_INTERFACE: Any = _HOST["llama_sampler_i"](
    accept=_HOST["llama_sampler_i_accept"](_accept),
    apply=_HOST["llama_sampler_i_apply"](_apply),
    reset=_HOST["llama_sampler_i_reset"](_reset),
    # ctypes callbacks cannot return pointers, only addresses
    clone=ctypes.cast(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_clone), _HOST["llama_sampler_i_clone"]),
    free=_HOST["llama_sampler_i_free"](_free),
)
