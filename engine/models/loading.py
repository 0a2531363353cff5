"""Models of the transformers library: loaded, and put into the adapter that their architecture asks for."""

from __future__ import annotations

from typing import Any

from ...errors import OptionError
from .decoder import DecoderModel
from .encoder_decoder import EncoderDecoderModel


def load(name: Any, tokenizer: Any, *, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Load a model and, unless given, its tokenizer by name or path."""
    import transformers

    hub: Any = transformers
    config = hub.AutoConfig.from_pretrained(name)
    kind = hub.AutoModelForSeq2SeqLM if getattr(config, "is_encoder_decoder", False) else hub.AutoModelForCausalLM
    model = kind.from_pretrained(name, dtype="auto" if dtype is None else dtype)
    if device is not None:
        model = model.to(device)
    return model, hub.AutoTokenizer.from_pretrained(name) if tokenizer is None else tokenizer


def adapted(model: Any, tokenizer: Any, *, cache: bool) -> DecoderModel | EncoderDecoderModel:
    """The model in our hands."""
    if not getattr(model.config, "is_encoder_decoder", False):
        return DecoderModel(model, tokenizer, cache=cache)
    if not cache:
        raise OptionError(f"cache=False: {type(model).__name__} is an encoder-decoder model, which runs with a cache")
    return EncoderDecoderModel(model, tokenizer)
