"""Batches of data sets: a class for `map_batches` of Ray Data, whose actors keep a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Unpack, cast

import numpy as np

from ...checks import check_text, shown
from ...engine.generator import Generator
from ...engine.options import Options, RunOptions
from ...engine.prompts.arguments import check_prompt
from ...errors import OptionError, TrellmError

COLUMNS = ("text", "value", "finish_reason", "tokens", "error")
"""Columns added to each row."""
FAILED = "error"


class Generate:
    """Generates a text for each row: `dataset.map_batches(Generate, fn_constructor_args=(generator,), ...)`.

    generator: a generator of `generate.X(model, ...)`, rebuilt in each actor; or a function without arguments that
        makes one there, so that the driver process loads no model
    column: the column of prompts: texts, lists of token ids, or lists of messages
    options: those of a call, such as max_tokens and seed; one text for each row

    Rows keep their columns and get `text`; `value` as JSON text; `finish_reason`; `tokens`, their number; `error`, the
    error of a prompt that cannot be used or of a value that its type rejects, else null. Raises OptionError.
    """

    def __init__(
        self,
        generator: Generator[Any] | Callable[[], Generator[Any]],
        column: str = "prompt",
        **options: Unpack[RunOptions],
    ) -> None:
        self._column = check_text(column, "column")
        if self._column in COLUMNS:
            raise OptionError(f"column={column!r}: the results add a column of this name; rename it")
        self._options = Options.of(RunOptions, options)
        if self._options.search.n != 1:
            raise OptionError(f"search={self._options.search!r}: only one text for each row is supported; use n=1")
        obj: Any = generator if isinstance(generator, Generator) else generator()
        if not isinstance(obj, Generator):
            raise OptionError(
                f"generator={shown(obj)}: expected a generator of generate.X(model, ...), or a function that makes one"
            )
        self._generator = cast("Generator[Any]", obj)
        _ = self._generator.model  # build it now, so that errors are raised at once

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch of columns extended by `COLUMNS`. Raises OptionError for missing or conflicting columns."""
        conflicts = [name for name in COLUMNS if name in batch]
        if conflicts or self._column not in batch:
            reason = (
                f"a column {conflicts[0]!r}, which the results would overwrite; rename it"
                if conflicts
                else "no column of this name"
            )
            raise OptionError(f"column={self._column!r}: the rows have {reason} ({', '.join(batch)})")
        rows = self._rows([_prompt(each) for each in batch[self._column]])
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        return {**batch, **{name: np.array(columns[name], int if name == "tokens" else object) for name in COLUMNS}}

    def _rows(self, prompts: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the results of prompts. Invalid prompts are isolated by bisection, and each gets an error row."""
        try:
            checked = [check_prompt(each, f"prompt {number}") for number, each in enumerate(prompts)]
            return [_row(result) for result in self._generator.run_texts(checked, self._options)]
        except TrellmError as error:
            if len(prompts) == 1:
                return [{"text": "", "value": None, "finish_reason": FAILED, "tokens": 0, "error": str(error)}]
        middle = len(prompts) // 2
        return self._rows(prompts[:middle]) + self._rows(prompts[middle:])


def _prompt(value: Any) -> Any:
    """Convert values of Arrow and NumPy columns to prompts."""
    if isinstance(value, np.ndarray):
        return [_prompt(each) for each in cast("Any", value).tolist()]
    return value


def _row(result: Any) -> dict[str, Any]:
    error = None if result.error is None else f"{type(result.error).__name__}: {result.error}"
    value = None if result.error is not None else json.dumps(result.value, default=_plain, ensure_ascii=False)
    return {
        "text": result.text,
        "value": value,
        "finish_reason": result.finish_reason,
        "tokens": len(result.token_ids),
        "error": error,
    }


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump: Any = getattr(value, "model_dump", None)  # pydantic models
    return str(value) if dump is None else dump(mode="json")
