"""A table of the masks of a vocabulary's guides on a device, so that a step transfers row numbers, not masks."""

# torch's conversions from arrays lack types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, shown
from ..errors import OptionError
from ..guides.lift.mask_table import MaskTable
from ..guides.lift.tables import VocabularyTables
from ..guides.protocol import Guide
from ..kernels.logits.mask import apply_mask
from ..tokenizers_adapter import Vocabulary
from .bitmask import States, guide_of, states_of

TRIES = 8


class DeviceMasks:
    """A mirror on a torch device of the mask table that all guides of a vocabulary share.

    vocabulary: of the guides; device: as torch names it
    table: int32 [rows, words] on the device, a row for each mask needed so far; each mask is transferred once
    Raises OptionError for other objects than vocabularies, or a device without memory. Not thread-safe.
    """

    def __init__(self, vocabulary: Vocabulary, device: Any) -> None:
        import torch

        self._source: MaskTable = VocabularyTables.of(vocabulary).masks
        self.vocabulary = vocabulary
        try:
            self.table = torch.zeros((self._source.max_rows, self._source.words), dtype=torch.int32, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:  # torch's errors depend on the device
            raise OptionError(
                f"device={brief(device)}: no table of {self._source.rows.nbytes / 2**20:,.0f} MiB can be allocated "
                f"there: {error}"
            ) from error
        # The version in each row of the mirror
        self._versions: NDArray[np.int64] = np.zeros(self._source.max_rows, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceMasks, (self.vocabulary, str(self.table.device))

    def rows(self, guide: Guide | Sequence[Guide], states: States) -> Any:
        """Return the rows of `table` with the states' masks: int32 tensor [n] on the device, valid until the next call.

        guide: one for all states, or one for each. Transfers masks that the device lacks. Raises OptionError for a
        guide of another vocabulary, or one without a mask table; StateError for invalid states.
        """
        import torch

        source = self._source
        for _ in range(TRIES):
            before = source.evictions
            numbers = self._numbers(guide, states_of(states))
            if len(set(numbers.tolist())) > source.max_rows // 2:
                raise OptionError(
                    f"{len(numbers)} different masks at once, but the table has {source.max_rows} rows, of which a "
                    "call may use half; ask for fewer states at a time"
                )
            missing = np.unique(numbers[source.written[numbers] != self._versions[numbers]])
            versions, rows = source.written[missing], source.rows[missing].view(np.int32)
            if source.evictions == before:
                break
        else:
            raise OptionError(
                "other threads evict the masks of this call from the table before they are copied; call it from fewer "
                "threads, or for fewer states"
            )
        if len(missing):
            self.table[torch.from_numpy(missing.astype(np.int64)).to(self.table.device)] = torch.from_numpy(rows).to(
                self.table.device
            )
            self._versions[missing] = versions
        return torch.from_numpy(numbers).to(self.table.device)

    def apply(self, logits: Any, guide: Guide | Sequence[Guide], states: States) -> None:
        """Set the logits of tokens that the states do not allow to -inf, in place: float [n, V] on the device.

        Raises the errors of `rows`, and OptionError for logits that do not fit.
        """
        rows = self.rows(guide, states)
        try:
            apply_mask(logits, self.table, rows)
        except (TypeError, ValueError) as error:
            raise OptionError(str(error)) from error

    def _numbers(self, guide: Any, states: list[int]) -> NDArray[np.int32]:
        if not isinstance(guide, Sequence):
            return self._rows_of(guide, states)
        guides = cast("Sequence[Guide]", guide)
        if len(guides) != len(states):
            raise OptionError(f"{len(guides)} guides for {len(states)} states; give one for each, or one for all")
        rows = [self._rows_of(each, [state]) for each, state in zip(guides, states, strict=True)]
        return np.concatenate(rows) if rows else np.zeros(0, np.int32)

    def _rows_of(self, guide: Guide, states: list[int]) -> NDArray[np.int32]:
        rows_of = getattr(guide_of(guide), "rows", None)
        if rows_of is None:
            raise OptionError(f"{shown(guide)} has no mask table; use fill_bitmask for this guide")
        if guide.table is not self._source:  # type: ignore[attr-defined]
            raise OptionError(
                f"{brief(guide)} has another vocabulary than these DeviceMasks; make one DeviceMasks for each "
                "vocabulary"
            )
        return rows_of(states)
