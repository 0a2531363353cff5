"""Rows of a host that passes all token ids at each step: the state of each row, and its mask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import items_of
from ..errors import ModelError, OptionError
from ..guides.explain import expected
from ..guides.protocol import DEAD, Guide, Mask
from ..kernels.logits.mask import words_for
from ..tokenizers_adapter import Vocabulary
from .bitmask import BitmaskBuffer, guide_of
from .session import check_budget, fill_masks, token_mask, within_budget

REMEMBERED = 64
"""Places that are cached for each row, at least: more than assisted decoding goes back."""

OTHER_ROWS = (
    "the rows are not those that this logits processor began with: it serves one call of generate; make a new one for "
    "each call, or call its reset() in between"
)


class RowPlace(NamedTuple):
    """Place of a row's text: the guide's state, and whether EOS was read."""

    state: int
    ended: bool


class TokenRows:
    """Rows of token ids that grow step by step, may fork, change places and go back; each is a prompt and a text.

    guide: one for all prompts, or one for each; rows of one prompt are adjacent and share its guide
    most: token limit within which texts are to be complete; option: the host's name for it
    are_chosen: whether the last token of a row is always chosen under its mask, as without beams and drafts
    The ids of the first step are the prompts. Raises OptionError for other objects than guides, BudgetError if no text
    is so short.
    """

    def __init__(
        self,
        guide: Guide | Sequence[Guide],
        most: int | None = None,
        option: str = "max_tokens",
        are_chosen: bool = False,
    ) -> None:
        guides = items_of(guide)
        self.guides = [guide_of(each) for each in ([guide] if guides is None else guides)]
        if not self.guides:
            raise OptionError("there is no guide; give one, or one for each prompt")
        self.most, self._are_chosen = most, are_chosen
        if most is not None:
            for each in {id(each): each for each in self.guides}.values():
                check_budget(each, most, option)
        self._eos = [frozenset(each.vocabulary.eos_ids) for each in self.guides]
        self.reset()

    def reset(self) -> None:
        """Restart with other prompts."""
        self._prompt: NDArray[np.int64] | None = None
        self._longest = 0
        self._clear_caches()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without cached states, which are numbers of this process's guides."""
        return {name: value for name, value in vars(self).items() if name not in ("_places", "_current", "_buffer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._clear_caches()

    def _clear_caches(self) -> None:
        self._places: dict[tuple[int, bytes], RowPlace] = {}
        self._current: list[RowPlace] = []
        self._buffer: BitmaskBuffer | None = None

    def masks(self, ids: NDArray[np.integer[Any]], shape: Sequence[int]) -> NDArray[np.int32]:
        """Return the masks of all rows, int32 [rows, words], valid until the next step.

        ids: the tokens of all rows so far, [rows, length]; shape: of the logits, [rows, V]
        Raises OptionError for rows that do not continue the earlier ones, for too narrow logits, and with `are_chosen`
        for a token that was not allowed.
        """
        if ids.ndim != 2 or len(shape) != 2 or not len(ids) == shape[0] > 0:
            raise OptionError(
                f"token ids {list(ids.shape)} and logits {list(shape)}; expected [rows, length] and [rows, vocabulary]"
            )
        for guide in self.guides:
            check_width(guide.vocabulary, shape[1])
        ids = np.ascontiguousarray(ids, np.int64)
        texts = ids[:, self._begin(ids) :]
        owners = self._owners(len(ids))
        self._current = self._advance(texts, owners)
        return self._masks(self._current, owners, texts.shape[1])

    def check(self, maxima: NDArray[np.floating[Any]]) -> None:
        """Raise an error if a row has no token left that its guide allows: OptionError, or ModelError for NaN.

        maxima: the largest score in each row of the last step under its mask, NaN if one of these is NaN. Of several
        rows of one prompt, such as beams, some may have none.
        """
        if (maxima > -np.inf).all():
            return
        is_running = np.array([not place.ended and place.state != DEAD for place in self._current], np.bool_)
        nan_rows = np.flatnonzero(np.isnan(maxima) & is_running)
        if len(nan_rows):
            raise ModelError(f"row {nan_rows[0]}: the model's scores have NaN for tokens that the guide allows")
        for first, end in pairwise(self._prompt_starts()):
            rows = [row for row in range(first, end) if is_running[row]]
            if rows and not (maxima[rows] > -np.inf).any():
                row = rows[0]
                expectation = expected(self.guides[self._owners(len(maxima))[row]], self._current[row].state)
                raise OptionError(
                    f"row {row}: all tokens that the guide allows have a score of -inf, so that none can be chosen. "
                    "Another logits processor or option forbids them, such as min_new_tokens, no_repeat_ngram_size, "
                    "bad words, forced tokens or a second guide: leave it out, or make the guide wider. The guide "
                    f"expects {expectation}"
                )

    def _prompt_starts(self) -> list[int]:
        """Return the first row of each prompt, and the number of rows. Adjacent rows with equal ids share a prompt."""
        prompt = cast("NDArray[np.int64]", self._prompt)
        owners = self._owners(len(prompt))
        differ = (prompt[1:] != prompt[:-1]).any(axis=1) | (np.diff(owners) != 0)
        return [0, *(np.flatnonzero(differ) + 1).tolist(), len(prompt)]

    def _begin(self, ids: NDArray[np.int64]) -> int:
        """Return the beginning of texts. Raises OptionError for rows that do not continue the earlier ones."""
        if self._prompt is None:
            self._prompt, self._longest = ids.copy(), ids.shape[1]
        width, count = self._prompt.shape[1], len(self._prompt)
        same = len(ids) == count and ids.shape[1] <= self._longest + 1
        # Beams change places only with others of the same prompt
        if not same or not np.array_equal(ids[:, :width], self._prompt):
            raise OptionError(OTHER_ROWS)
        self._longest = max(self._longest, ids.shape[1])
        return width

    def _owners(self, rows: int) -> list[int]:
        """Return the number of each row's guide."""
        count = len(self.guides)
        if rows % count:
            raise OptionError(f"{count} guides for {rows} rows; give one guide for each prompt, or one for all")
        return [row * count // rows for row in range(rows)]

    def _advance(self, texts: NDArray[np.int64], owners: list[int]) -> list[RowPlace]:
        """Return the place of each row by its text, so that rows may fork, change places and go back."""
        cache, places = self._places, list[RowPlace]()
        for text, owner in zip(texts, owners, strict=True):
            if not len(text):
                places.append(RowPlace(self.guides[owner].start, False))
                continue
            before = cache.get((owner, text[:-1].tobytes()))
            if before is None:
                before = RowPlace(self.guides[owner].start, False)
                for token in text[:-1].tolist():
                    before = self._advance_place(owner, before, token)
                if before.state == DEAD:  # no earlier step led there
                    raise OptionError(OTHER_ROWS)
            place = self._advance_place(owner, before, text.item(-1))
            if place.state == DEAD and self._are_chosen:
                raise OptionError(
                    f"token {text[-1]} was chosen, which the guide does not allow: later logits processors changed the "
                    "scores; put this one last, and leave out those that forbid all allowed tokens"
                )
            places.append(place)
        if len(cache) > REMEMBERED * len(owners):
            for key in list(cache)[: -8 * len(owners)]:
                del cache[key]
        cache.update(((owner, text.tobytes()), place) for text, owner, place in zip(texts, owners, places, strict=True))
        return places

    def _advance_place(self, owner: int, place: RowPlace, token: int) -> RowPlace:
        if place.ended or place.state == DEAD:
            return place
        state = self.guides[owner].advance(place.state, token)
        return RowPlace(state, state != DEAD and token in self._eos[owner])

    def _masks(self, places: list[RowPlace], owners: list[int], length: int) -> NDArray[np.int32]:
        """Return the masks of all rows, int32 [rows, words].

        Rows whose text has ended, or is not allowed (a beam of probability 0, a refused draft), get EOS.
        """
        if self._buffer is None or len(self._buffer.bitmask) != len(places):
            widest = max(guide.vocabulary.size for guide in self.guides)
            self._buffer = BitmaskBuffer(np.zeros((len(places), words_for(widest)), np.int32))
        overrides: dict[int, Mask] = {}
        for row, (place, owner) in enumerate(zip(places, owners, strict=True)):
            mask: Mask | None = None
            if place.ended or place.state == DEAD:
                mask = token_mask(self.guides[owner].vocabulary, self._eos[owner])
            elif self.most is not None:
                mask = within_budget(self.guides[owner], place.state, self.most - length)
            if mask is not None:
                overrides[row] = mask
        guides = self.guides[0] if len(self.guides) == 1 else [self.guides[owner] for owner in owners]
        fill_masks(guides, [place.state for place in places], overrides, self._buffer)
        return self._buffer.bitmask


def check_width(vocabulary: Vocabulary, width: int) -> None:
    """Raise OptionError if logits are too narrow for a guide's vocabulary, which then is not the model's."""
    if width < vocabulary.size:
        raise OptionError(
            f"the model's logits have {width:,} values, but the guide's vocabulary has {vocabulary.size:,} tokens: the "
            "tokenizer is not this model's, or wider; make the guide for a vocabulary of this width: "
            "Vocabulary.from_tokenizer(tokenizer, size=...)"
        )
