"""Models: `transformers` for Hugging Face models, `small` and `ziplm` for play, `from_function` for anything else.

Bringing your own model takes a vocabulary and a function from token ids to logits:

    vocabulary = Vocabulary([b"a", b"b", None], eos_ids=(2,))
    model = models.from_function(lambda ids: [0.5, 0.2, len(ids) / 10], vocabulary)
    generate.regex(model, "(ab)+")("")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .protocol import Model, Tokenizer

if TYPE_CHECKING:
    from ...tokenizers_adapter import Vocabulary
    from .decoder import DecoderModel
    from .encoder_decoder import EncoderDecoderModel
    from .function import FunctionModel
    from .zip_model import ZipModel

__all__ = ["Model", "Tokenizer", "from_function", "small", "transformers", "ziplm"]


def transformers(
    model: Any, tokenizer: Any = None, *, cache: bool = True, device: Any = None, dtype: Any = None
) -> DecoderModel | EncoderDecoderModel:
    """A model of the transformers library: its name or path, or the loaded model and tokenizer.

    Decoder-only models continue the prompt; encoder-decoder models (T5, BART, Marian) read it apart.
    cache: False computes every step from the whole text; slow, but for any decoder-only architecture.
    A text may be as long as the model's positions go; with rotary embeddings that are scaled anew for long texts
    (LongRoPE, dynamic NTK), as long as the scaling stays the same.
    device, dtype: where and in what type to load a model that is given by name; as they are otherwise.
    Raises OptionError for an architecture that cannot be run, VocabularyError for a tokenizer.
    """
    from ...checks import switch

    switch(cache, "cache")
    from .loading import adapted, load  # which takes two seconds the first time

    if isinstance(model, str) or hasattr(model, "__fspath__"):
        model, tokenizer = load(model, tokenizer, device=device, dtype=dtype)
    return adapted(model, tokenizer, cache=cache)


def from_function(
    logits: Callable[[Sequence[int]], Any],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer | None = None,
    *,
    context: int | None = None,
    some_logits: Callable[[Sequence[int], Sequence[int]], Any] | None = None,
) -> FunctionModel:
    """A model from any function of the token ids so far to V logits (list, NumPy array or tensor).

    tokenizer: anything with `encode(text) -> ids`; by default the longest tokens that fit.
    some_logits: `some_logits(ids, tokens)` returns the logits of these tokens only, where that is cheaper.
    """
    from .function import FunctionModel

    return FunctionModel(logits, vocabulary, tokenizer, context, some_logits)


def small(*, device: Any = None) -> DecoderModel:
    """The small model that lies in the package: 3.6 million parameters, loaded in float32, without a network.

    It reads short English passages and copies from them: records as JSON, quotations, one of several choices, dates and
    numbers in their normal form, calls of tools. docs/small-model.md says what it can and cannot do.
    device: where to load it, by default the CPU
    """
    from pathlib import Path

    from .loading import load_decoder

    return load_decoder(Path(__file__).with_name("small"), device=device, dtype="float32")


def ziplm(text: str, *, alphabet: str | None = None, conversion: float = math.log(256)) -> ZipModel:
    """The gzip language model over single characters: likely is what makes `text` + prompt compress well.

    alphabet: the characters it may write, by default those of `text` and of printable ASCII.
    conversion: nats per compressed byte; a higher one makes sampling greedier.
    """
    from .zip_model import ZipModel

    return ZipModel(text, alphabet, conversion)
