"""Masks of many states in one call, written into a bitmask of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_int, items_of, shown
from ..errors import OptionError, StateError
from ..guides.lift.mask_table import MaskTable
from ..guides.protocol import Guide, Mask, RowGuide
from ..kernels.jit.aliases import Ints, Longs
from ..kernels.logits.mask import LISTED, MANY, copy_rows, renew_rows, words_for
from ..tokenizers_adapter import Vocabulary

States = Sequence[int] | NDArray[np.integer[Any]]

WORDS = (np.dtype(np.int32), np.dtype(np.uint32))


class BitmaskArray:
    """Memory of a bitmask [rows, words] for kernels: int32 [n], the stride between rows, the words of a row, and rows.

    Raises OptionError for objects that are not bitmasks of NumPy or torch.
    """

    __slots__ = ("memory", "rows", "span", "stride")

    def __init__(self, bitmask: Any) -> None:
        array = numpy_of(bitmask)
        if array.ndim != 2 or array.dtype not in WORDS:
            raise OptionError(
                f"bitmask is {array.dtype} {list(array.shape)}, but must be int32 or uint32 [rows, words], a bit for "
                "each token"
            )
        if not array.flags.writeable:
            raise OptionError("bitmask is read-only; give a writable array")
        self.rows, self.span = array.shape
        if array.flags.c_contiguous:
            self.stride = self.span
            flat = array.reshape(-1)
        else:
            self.stride, rest = divmod(array.strides[0], 4)
            if array.strides[1] != 4 or rest or self.stride < self.span:
                raise OptionError("the words of a bitmask's row must be contiguous; do not transpose or slice it")
            flat = np.lib.stride_tricks.as_strided(array, ((self.rows - 1) * self.stride + self.span,), (4,))
        self.memory: Ints = flat.view(np.int32)

    def write(self, table: MaskTable, rows: Ints, places: Ints) -> None:
        """Write rows of a mask table, by their numbers int32 [k], to places int32 [k]."""
        copy_rows(table.rows, table.few, rows, self.memory, places, self.stride, self.span)

    def put(self, place: int, mask: Mask) -> None:
        """Write a mask uint32 [W] that is in no table to a place."""
        begin, words = place * self.stride, len(mask)
        self.memory[begin : begin + words] = mask.view(np.int32)
        self.memory[begin + words : begin + self.span] = 0

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise OptionError if the rows are too short for the masks of a vocabulary."""
        needed = words_for(vocabulary.size)
        if self.span < needed:
            raise OptionError(
                f"bitmask has rows of {self.span} words, for {32 * self.span:,} tokens, but the guide's vocabulary has "
                f"{vocabulary.size:,} tokens and needs {needed}; make the vocabulary as wide as the model's logits: "
                "Vocabulary.from_tokenizer(tokenizer, size=...)"
            )


def bits_of(bitmask: Any) -> BitmaskArray:
    """Return a BitmaskBuffer unchanged, or the memory of a bitmask. Raises OptionError for other objects."""
    return bitmask if isinstance(bitmask, BitmaskBuffer) else BitmaskArray(bitmask)


def numpy_of(bitmask: Any) -> Any:
    """Return an array, or a view of a CPU tensor's memory. Raises OptionError for other objects and devices."""
    if type(bitmask) is np.ndarray:
        return bitmask
    if isinstance(bitmask, np.ndarray):  # np.matrix, or a masked array
        return np.asarray(bitmask)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not hasattr(bitmask, "data_ptr"):
        raise OptionError(f"bitmask must be a NumPy array or a torch tensor, not {shown(bitmask)}")
    if bitmask.device.type != "cpu":
        raise OptionError(
            f"bitmask lies on {bitmask.device}; masks are filled in CPU memory: fill one there and move it, "
            "or keep the masks on the device with adapters.DeviceMasks"
        )
    try:
        return bitmask.numpy()
    except (TypeError, RuntimeError) as error:  # sparse tensors, and dtypes that NumPy lacks
        raise OptionError(
            f"bitmask is a tensor whose memory is not writable: {error} Give one of int32 or uint32 "
            "[rows, words], as allocate_bitmask makes them"
        ) from error


def allocate_bitmask(vocabulary: Vocabulary | int, rows: int) -> NDArray[np.int32]:
    """Return a bitmask int32 [rows, ceil(V / 32)] that allows no token. vocabulary: or the width of the logits"""
    size = vocabulary.size if isinstance(vocabulary, Vocabulary) else check_int(vocabulary, "vocabulary")
    return np.zeros((check_int(rows, "rows"), words_for(size)), np.int32)


class BitmaskBuffer(BitmaskArray):
    """A bitmask that remembers the contents of its rows, so that only changes are written.

        buffer = BitmaskBuffer(allocate_bitmask(vocabulary, 256))
        fill_bitmask(guide, states, buffer)

    bitmask: int32 or uint32 [rows, words], a NumPy array or a torch tensor in CPU memory. If other code writes to it,
    call `forget`. Raises OptionError for other objects. Not thread-safe.
    """

    __slots__ = ("_listed_words", "_table", "_versions", "bitmask")

    def __init__(self, bitmask: Any) -> None:
        if isinstance(bitmask, BitmaskBuffer):
            raise OptionError("this is a BitmaskBuffer already; make one of the array or tensor")
        super().__init__(bitmask)
        self.bitmask = bitmask
        self._table: MaskTable | None = None
        # The version of the mask in each row, and its listed words, see `kernels.logits.mask`
        self._versions: Longs = np.zeros(self.rows, np.int64)
        self._listed_words: Ints = np.full((self.rows, LISTED), MANY, np.int32)

    def __repr__(self) -> str:
        return f"BitmaskBuffer({self.rows} rows of {self.span} words)"

    def __copy__(self) -> BitmaskBuffer:
        """Return a buffer with a copy of the bitmask: two buffers must not write to one."""
        return deepcopy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return BitmaskBuffer, (self.bitmask,)

    def forget(self, rows: Sequence[int] | Ints | None = None) -> None:
        """Note that other code has written to some rows, or to all. Raises OptionError for invalid rows."""
        numbers = items_of(rows.tolist() if hasattr(rows, "tolist") else rows)  # type: ignore[union-attr]
        if rows is not None and numbers is None:
            raise OptionError(f"rows={brief(rows)}: expected numbers of rows, or None for all")
        places: Any = slice(None) if numbers is None else _places_of(numbers, len(numbers), self.rows)
        self._versions[places] = 0
        self._listed_words[places] = MANY

    def write(self, table: MaskTable, rows: Ints, places: Ints) -> None:
        """Write rows of a mask table to places that hold other contents."""
        if table is not self._table:
            self._versions[:] = 0  # versions belong to a table
            self._table = table
        renew_rows(
            table.rows, table.few, table.written, rows, self.memory, places, self.stride, self.span,
            self._versions, self._listed_words,
        )  # fmt: skip

    def put(self, place: int, mask: Mask) -> None:
        """Write a mask uint32 [W] that is in no table to a place."""
        self.forget([place])
        super().put(place, mask)


def fill_bitmask(
    guide: Guide | Sequence[Guide], states: States, bitmask: Any, rows: Sequence[int] | Ints | None = None
) -> None:
    """Write the masks of states into rows of a bitmask: one call for a batch, without an intermediate copy.

    guide: one for all states, or one for each; states: from the guides' `start` and `advance`, DEAD included
    bitmask: int32 or uint32 [rows, words], a NumPy array or a torch tensor in CPU memory; bit t % 32 of word t // 32 is
    token t. It may have more words than the vocabulary needs; tokens beyond the vocabulary are not allowed. Or a
    BitmaskBuffer of one, and only changes are written
    rows: the row for each state's mask; by default row i for state i
    Raises OptionError for arguments that do not fit together, StateError for invalid states; then nothing is written.
    """
    if not isinstance(guide, Sequence) or isinstance(guide, str):
        guide = guide_of(guide)
    numbers = states_of(states)
    bits = bits_of(bitmask)
    places = _places_of(rows, len(numbers), bits.rows)
    if not isinstance(guide, Sequence):
        _fill([GuideStates(guide, numbers, places)], bits)
        return
    guides = guide
    if len(guides) != len(numbers):
        raise OptionError(f"{len(guides)} guides for {len(numbers)} states; give one for each, or one for all")
    by_guide: dict[int, list[int]] = {}
    for place, each in enumerate(guides):
        by_guide.setdefault(id(each), []).append(place)
    _fill(
        [
            GuideStates(guide_of(guides[chosen[0]]), [numbers[place] for place in chosen], places[chosen])
            for chosen in by_guide.values()
        ],
        bits,
    )


class GuideStates(NamedTuple):
    """States of one guide, and the places int32 [n] of their masks."""

    guide: Guide
    states: list[int]
    places: Ints


def _fill(parts: list[GuideStates], bits: BitmaskArray) -> None:
    """Write the masks of all parts. All masks are computed before any is written, since each may fail."""
    for part in parts:
        bits.check(part.guide.vocabulary)
    # For each table: its evictions before the look-up, the numbers of rows, and the parts
    by_table: dict[int, tuple[MaskTable, int, list[Ints], list[GuideStates]]] = {}
    without_table: list[tuple[int, Mask]] = []
    for part in parts:
        rows_of: Callable[[list[int]], Ints] | None = getattr(part.guide, "rows", None)
        if rows_of is None:
            masks = [part.guide.mask(state).copy() for state in part.states]
            without_table += zip(part.places.tolist(), masks, strict=True)
            continue
        table = cast("RowGuide", part.guide).table
        entry = by_table.get(id(table))
        if entry is None:
            entry = by_table[id(table)] = table, table.evictions, [], []
        entry[2].append(rows_of(part.states))
        entry[3].append(part)
    for place, mask in without_table:
        bits.put(place, mask)
    for table, before, rows, in_table in by_table.values():
        if table.evictions == before:
            numbers = rows[0] if len(rows) == 1 else np.concatenate(rows)
            places = in_table[0].places if len(in_table) == 1 else np.concatenate([part.places for part in in_table])
            bits.write(table, numbers, places)
        if table.evictions != before:  # other threads evicted rows before they were copied
            for part in in_table:
                for state, place in zip(part.states, part.places.tolist(), strict=True):
                    bits.put(place, _mask_in(table, part.guide, state))


def _mask_in(table: MaskTable, guide: Guide, state: int) -> Mask:
    """Return a copy of a state's mask, made while the table evicted no row."""
    while True:
        before = table.evictions
        mask = guide.mask(state).copy()
        if table.evictions == before:
            return mask


def guide_of(guide: Any) -> Guide:
    """Return the argument if it is a guide, of this package or another. Raises OptionError otherwise."""
    if isinstance(guide, type) or not all(hasattr(guide, name) for name in ("vocabulary", "mask", "advance", "start")):
        raise OptionError(f"{shown(guide)} is no guide; make one such as guides.RegexGuide(pattern, vocabulary)")
    return guide


def states_of(states: Any) -> list[int]:
    """Return states as a list of ints; the guide validates them. Raises StateError for other objects."""
    values: Any = states.tolist() if hasattr(states, "tolist") else states
    if isinstance(values, list):
        return cast("list[int]", values)
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return list(cast("Sequence[int]", values))
    raise StateError(f"states must be states of the guides, one for each row, not {brief(states)}")


def _places_of(rows: Any, count: int, most: int) -> Ints:
    """Return the row of each state: int32 [count]."""
    if rows is None:
        if count > most:
            raise OptionError(f"{count} states do not fit into a bitmask of {most} rows; allocate as many rows")
        return _FIRST[:count] if count <= len(_FIRST) else np.arange(count, dtype=np.int32)
    places = np.asarray(rows)
    if places.ndim != 1 or len(places) != count or (count and places.dtype.kind not in "iu"):
        raise OptionError(f"rows={brief(rows)}: expected the number of a row for each of {count} states")
    if count and not (places.min() >= 0 and places.max() < most):
        raise OptionError(f"rows={brief(rows)}: the bitmask has the rows 0 to {most - 1}")
    return np.ascontiguousarray(places, np.int32)


_FIRST = np.arange(4096, dtype=np.int32)
