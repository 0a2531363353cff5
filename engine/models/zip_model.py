"""A language model based on a compressor: continuations that hardly lengthen the compressed text are likely."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...checks import check_number, check_text
from ...errors import OptionError
from ...tokenizers_adapter import Vocabulary
from .function import FunctionModel

PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


class ZipModel(FunctionModel):
    """The gzip language model. A logit is minus the compressed length of text + prompt + token, times `conversion`.

    The compressor is deflate, which looks back 32 KiB. After R. Futrell's model in the Outlines blog (2023). The model
    needs no weights; it is an example of a function as a model.
    """

    def __init__(self, text: str, alphabet: str | None = None, conversion: float = math.log(256)) -> None:
        check_text(text, "the text of models.ziplm")
        meaning = "nats per compressed byte, a number above 0"
        if check_number(conversion, "conversion", meaning) <= 0:
            raise OptionError(f"conversion={conversion!r}: {meaning}")
        letters = None if alphabet is None else check_text(alphabet, "the alphabet of models.ziplm")
        characters = sorted({*text, *PRINTABLE} if letters is None else {*letters})
        if not characters:
            raise OptionError("alphabet is empty; the model needs at least one character")
        tokens: list[bytes | None] = [character.encode() for character in characters]
        self._training = text.encode()
        self._conversion = conversion
        vocabulary = Vocabulary([*tokens, None], eos_ids=(len(tokens),))
        super().__init__(self._compute_all, vocabulary, some_logits=self._compute_some)

    def __repr__(self) -> str:
        return f"<ZipModel of {len(self._training):,} bytes, {self.vocabulary.size} tokens>"

    def _compute_all(self, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._compute_some(ids, range(self.vocabulary.size))

    def _compute_some(self, ids: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        spelling = self.vocabulary.tokens
        compressor = zlib.compressobj(9)
        head = len(compressor.compress(self._training + b"".join(spelling[token] or b"" for token in ids)))
        lengths: list[int] = []
        for token in tokens:
            branch = compressor.copy()
            lengths.append(head + len(branch.compress(spelling[token] or b"\0")) + len(branch.flush()))
        return np.array(lengths, np.float32) * np.float32(-self._conversion)
