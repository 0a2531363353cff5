"""Protocols of constraints as the engine uses them: the token-level interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, implements
from ..errors import OptionError
from ..kernels.answers import DEAD as DEAD
from ..kernels.answers import NEVER as NEVER
from ..tokenizers_adapter import Vocabulary
from .arguments import check_left
from .lift.mask_table import MaskTable
from .quoting.source import Span

Mask = NDArray[np.uint32]


class Capture(NamedTuple):
    """A named part of a text: its characters `text[start:end]`."""

    text: str
    start: int
    end: int


class Findings(NamedTuple):
    """Quotations and captures in one text of a guide, each by name."""

    spans: Mapping[str, Span]
    captures: Mapping[str, tuple[Capture, ...]]

    @classmethod
    def of(cls, guide: Any, text: str, data: bytes | None = None) -> Findings:
        """Collect the findings of any guide; empty where it has none. Raises as the guide's `spans` and `captures` do.

        data: the bytes of a text with special tokens, for `CFGGuide.spans`
        """
        both: Any = getattr(guide, "findings", None)
        if both is not None:
            return both(text if data is None else data)
        spans, captures = (getattr(guide, name, None) for name in ("spans", "captures"))
        return cls({} if spans is None else spans(text), {} if captures is None else captures(text))


@runtime_checkable
class Guide(Protocol):
    """A constraint over token ids with integer states. Guides are immutable to users and may be shared."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the masks' token ids."""
        ...

    @property
    def start(self) -> int:
        """The state before the first token."""
        ...

    def mask(self, state: int) -> Mask:
        """Return the tokens allowed in `state`: uint32 [ceil(V / 32)], bit t % 32 of word t // 32 is token t.

        EOS bits are set iff the state is accepting, none in DEAD. The array is shared and read-only: use it before the
        next call. This and all other methods raise StateError for numbers that are not states.
        """
        ...

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`; DEAD if it is not allowed or no token. EOS keeps an accepting state."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete."""
        ...

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state, EOS not counted; never an underestimate.

        Consistent: from a state with distance d > 0, some allowed token leads to a distance of at most d - 1.
        """
        ...


@runtime_checkable
class ByteGuide(Guide, Protocol):
    """A guide that reads bytes of any tokenization, such as prompts, goals and the parts of composed guides."""

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete the text from there."""
        ...


@runtime_checkable
class Rebuildable(Guide, Protocol):
    """A guide whose states may accumulate so much memory that a fresh guide should serve the next text."""

    @property
    def should_rebuild(self) -> bool:
        """True if a fresh guide should serve the next text."""
        ...

    def rebuild(self) -> Guide:
        """Return a fresh guide of the same constraint."""
        ...


@runtime_checkable
class RowGuide(Guide, Protocol):
    """A guide whose masks are rows of a table; a step may send row numbers instead of masks."""

    @property
    def table(self) -> MaskTable:
        """The table that holds the rows; one per vocabulary."""
        ...

    def row(self, state: int) -> int:
        """Return the number of the row that holds `mask(state)`; valid until the table's next eviction."""
        ...

    def mask_within(self, state: int, left: int) -> Mask:
        """Compute `guides.mask_within`, faster."""
        ...


@runtime_checkable
class Describing(Protocol):
    """A guide that describes its states in words. `guides.explain.expected` describes other guides."""

    def describe(self, state: int) -> str:
        """Describe what may follow in a state, for people: "a digit 0-9 in #/properties/age (type)"."""
        ...


@runtime_checkable
class Quoting(Guide, Protocol):
    """A guide whose texts are parts of documents."""

    def ahead(self, state: int) -> bytes:
        """Return the bytes that follow in the document if the text so far occurs there only once; else no bytes."""
        ...


@runtime_checkable
class Foreseeing(Guide, Protocol):
    """A guide that answers at once for several bytes or all tokens; other guides are asked one by one."""

    def certain_bytes(self, state: int, most: int) -> bytes:
        """Return the forced bytes from a state, up to `most`, whether or not tokens spell them."""
        ...

    def after_each_token(self, state: int) -> NDArray[np.int32] | None:
        """Return the state after each token: int32 [V], DEAD where it is not allowed or ends the text.

        None if the guide has no answer faster than `advance` per token.
        """
        ...


def mask_within(guide: Guide, state: int, left: int) -> Mask:
    """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting.

    uint32 [ceil(V / 32)]. With `left >= distance(state)` and `left > 0` the result has a bit set, unless the
    state is accepting and only EOS may follow.
    """
    if implements(guide, RowGuide):
        return guide.mask_within(state, left)
    if not isinstance(guide, Guide):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"mask_within asks a guide, not {brief(guide)}")
    left = check_left(left)
    mask = guide.mask(state).copy()
    eos = set(guide.vocabulary.eos_ids)
    for token in tokens_of(mask):
        if token not in eos and guide.distance(guide.advance(state, token)) > left - 1:
            mask[token >> 5] &= ~np.uint32(1 << (token & 31))
    return mask


def fits(guide: Guide, state: int, left: int) -> bool:
    """Test whether `guide.distance(state) <= left`, by the guide's own `fits` where it has one."""
    quick: Any = getattr(guide, "fits", None)
    return guide.distance(state) <= left if quick is None else quick(state, left)


def should_rebuild(guide: Guide) -> bool:
    """Test whether a fresh guide should serve the next text; False for guides without `should_rebuild`."""
    return implements(guide, Rebuildable) and guide.should_rebuild


def rebuilt(guide: Any) -> Any:
    """Return a fresh guide of the same constraint if one should serve the next text, else the guide itself."""
    return guide.rebuild() if should_rebuild(guide) else guide


def mask_of(tokens: Iterable[int], size: int) -> Mask:
    """Make the mask of some of `size` tokens, uint32 [ceil(size / 32)], for custom guides."""
    flags = np.zeros(32 * ((size + 31) // 32), np.bool_)
    flags[np.fromiter(map(index, tokens), np.int64)] = True
    return np.packbits(flags, bitorder="little").view(np.uint32)


def tokens_of(mask: Mask) -> list[int]:
    """Return the token ids whose bits are set, ascending."""
    words = np.flatnonzero(mask)  # usually few
    places = np.flatnonzero(np.unpackbits(mask[words].view(np.uint8), bitorder="little"))
    each = 8 * mask.itemsize
    return (each * words[places // each] + places % each).tolist()
