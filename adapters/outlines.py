"""Guides in Outlines: a logits processor, and a backend that makes it from schemas, expressions and grammars."""
# Type checks run without Outlines.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check_choice, shown
from ..errors import OptionError
from ..guides.protocol import Guide
from ..kernels.logits.mask import apply_mask
from ..tokenizers_adapter import Vocabulary
from .hosts import interface
from .rows import TokenRows
from .specs import guide_for

TRIED = "Outlines 1.3"
LIBRARIES = ("torch", "numpy", "mlx")

_HOST = interface(
    "Outlines",
    "outlines",
    TRIED,
    {
        "outlines.processors.base_logits_processor": [
            "OutlinesLogitsProcessor",
            "OutlinesLogitsProcessor.process_logits",
        ],
        "outlines.backends.base": ["BaseBackend", "BaseBackend.get_regex_logits_processor"],
    },
)
OutlinesLogitsProcessor: Any = _HOST["OutlinesLogitsProcessor"]
BaseBackend: Any = _HOST["BaseBackend"]


class GuideProcessor(OutlinesLogitsProcessor):
    """A logits processor of Outlines for any guide, in any of its models that take one.

        outlines.Generator(model, processor=GuideProcessor(guide, model.tensor_library_name))

    guide: one for all prompts of a batch, or one for each; library: that of the model's tensors
    max_tokens: the model's; every text is then complete within it. A generator may be called repeatedly.
    Raises OptionError for other objects than guides or libraries, BudgetError if no text is so short.
    """

    def __init__(self, guide: Guide | Sequence[Guide], library: str, *, max_tokens: int | None = None) -> None:
        check_choice(library, "library", LIBRARIES)
        super().__init__(library)
        self._library = library
        self._rows = TokenRows(guide, max_tokens, "max_tokens")

    def reset(self) -> None:
        """Prepare for another generation; Outlines calls it before each."""
        self._rows.reset()

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        """Return the logits [rows, V] with -inf for tokens that may not follow the tokens [rows, n]."""
        if not type(logits).__module__.startswith(self._library):
            raise OptionError(
                f"library={self._library!r}, but the model's logits are of {type(logits).__module__}; make the "
                "processor with the model's tensor_library_name"
            )
        ids = input_ids.detach().cpu().numpy() if self._library == "torch" else np.array(input_ids)
        masks = self._rows.masks(ids, logits.shape)
        if self._library == "mlx":
            from .mlx_lm import mask_logits as mask_mlx_logits

            masked_logits, maxima = mask_mlx_logits(logits, masks)
        elif self._library == "torch":
            from .transformers import mask_logits

            masked_logits, maxima = mask_logits(logits, masks)
        else:
            masked_logits = np.array(logits, np.float32)
            apply_mask(masked_logits, masks.view(np.uint32))
            maxima = masked_logits.max(axis=-1)
        self._rows.check(maxima)
        return masked_logits


class TrellmBackend(BaseBackend):
    """Logits processors for Outlines' output types, for one of its models.

        backend = TrellmBackend(model, vocabulary)
        outlines.Generator(model, processor=backend.get_json_schema_logits_processor(schema))

    vocabulary: that of the model, as wide as its logits
    """

    def __init__(self, model: Any, vocabulary: Vocabulary) -> None:
        library = getattr(model, "tensor_library_name", None)
        if library not in LIBRARIES:
            raise OptionError(
                f"{shown(model)} takes no logits processors; use a model that Outlines runs in this process"
            )
        if not isinstance(vocabulary, Vocabulary):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"vocabulary must be a Vocabulary, not {shown(vocabulary)}")
        self._library: str = library
        self._vocabulary = vocabulary

    def get_json_schema_logits_processor(
        self, json_schema: str, whitespace_pattern: str | None = None
    ) -> GuideProcessor:
        """Return a processor for a JSON Schema; the white space is that of `JSONGuide`."""
        if whitespace_pattern is not None:
            raise OptionError(
                "whitespace_pattern is not supported; make JSONGuide(schema, vocabulary, whitespace=...), and a "
                "GuideProcessor with it"
            )
        return self._processor("json", json_schema)

    def get_regex_logits_processor(self, regex: str) -> GuideProcessor:
        """Return a processor for a regular expression."""
        return self._processor("regex", regex)

    def get_cfg_logits_processor(self, grammar: str) -> GuideProcessor:
        """Return a processor for a grammar in Lark or GBNF."""
        return self._processor("grammar", grammar)

    def _processor(self, kind: str, text: str) -> GuideProcessor:
        return GuideProcessor(guide_for(kind, text, self._vocabulary), self._library)
