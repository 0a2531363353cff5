"""Loading of models with quantized weights, by name or folder, or from loaded models."""

# torch and transformers are only partly typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import copy
import json
from importlib.util import find_spec
from typing import Any

import torch
import transformers

from ....errors import OptionError
from ....guides.locks import new_lock
from ..load_options import LoadOptions
from ..stock import is_spread
from .conversion import fill, quantized
from .saved import WeightsSource, load_saved, save, say_unfit

_LOADING = new_lock()
"""Lock for the creation of models, during which transformers and torch patch their functions for all threads."""


def load_quantized(path: str, config: Any, auto: Any, options: LoadOptions) -> Any:
    """Load a model by name or folder, with quantized weights mapped from the cache. Quantize and save missing weights.

    config: the model's configuration; auto: the transformers class that loads such models
    Raises OptionError for unsupported models, and the exceptions of transformers.
    """
    form: str = options.weights
    _check(form, config)
    if getattr(config, "quantization_config", None) is not None:
        raise OptionError(f"weights={form!r}: the weights of {path!r} are quantized already; leave the option out")
    with _LOADING:
        return _load(path, config, auto, options)


def _load(path: str, config: Any, auto: Any, options: LoadOptions) -> Any:
    form: str = options.weights
    source = WeightsSource.of(path, config, form)
    found = None if source is None else _of_file(source, config, auto, options)
    if found is not None:
        return found
    model = auto.from_pretrained(path, **{**options.of_weights, "dtype": torch.float32})
    weights, generation = quantized(model, form), getattr(model, "generation_config", None)
    source = WeightsSource.of(path, config, form)  # again, since loading may have downloaded the files
    settings: Any = None if generation is None else json.loads(generation.to_json_string(use_diff=False))
    if source is not None and save(source, weights, settings):
        found = _of_file(source, config, auto, options)
    return fill(model, weights) if found is None else found


def quantized_copy(model: Any, form: str) -> Any:
    """Return a copy of a loaded model with quantized weights. It shares all other weights.

    Raises OptionError for an unsupported model.
    """
    _check(form, model.config)
    places = {tensor.device.type for tensor in (*model.parameters(), *model.buffers())}
    elsewhere = ", ".join(sorted(places - {"cpu"}))
    causes = {
        "is in training; products with quantized weights are not differentiated: call eval()": model.training,
        f"has weights on {elsewhere}; quantized ones are multiplied on a CPU": bool(elsewhere),
        "is spread by accelerate": is_spread(model),
        "has quantized weights already": getattr(model, "hf_quantizer", None) is not None,
        "has an adapter of PEFT; merge it into the weights first": hasattr(model, "peft_config"),
    }
    if (cause := next((cause for cause, holds in causes.items() if holds), None)) is not None:
        raise OptionError(f"weights={form!r}: the {type(model).__name__} {cause}; or leave the option out")
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return fill(copy.deepcopy(model, shared), quantized(model, form))


def _check(form: str, config: Any) -> None:
    """Raise OptionError without the package gguf, and for encoder-decoder models."""
    if find_spec("gguf") is None:
        raise OptionError(
            f"weights={form!r} needs the package gguf, which is not installed: pip install 'trellm[gguf]'"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise OptionError(
            f"weights={form!r}: weights of decoder-only models are quantized, and this is an encoder-decoder model; "
            "leave the option out"
        )


def _of_file(source: WeightsSource, config: Any, auto: Any, options: LoadOptions) -> Any | None:
    """Return the model with saved weights; None, with a log message, if they are missing or do not fit."""
    saved = load_saved(source)
    if saved is None:
        return None
    weights, generation = saved
    library: Any = transformers
    with torch.device("meta"):
        model = auto.from_config(copy.deepcopy(config), **options.of_model, dtype=torch.float32)
    try:
        fill(model, weights)
    except (ValueError, KeyError, AttributeError) as error:  # AttributeError for a missing module
        say_unfit(source, error)
        return None
    if generation is not None:
        model.generation_config = library.GenerationConfig.from_dict(dict(generation))
    return model
