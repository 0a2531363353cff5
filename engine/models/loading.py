"""Loading of transformers models and GGUF files, and their wrapping as our models."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ...checks import brief, shown
from ...errors import OptionError, TrellmError
from .decoder import DecoderModel
from .encoder_decoder import EncoderDecoderModel
from .generation_config import warn_of
from .gguf_files.loading import load_gguf
from .gguf_files.network import GGUFNetwork
from .load_options import LoadOptions, is_gguf, place_of
from .media.families import check_family, family_of
from .media.processing import is_processor
from .quantized.loading import load_quantized, quantized_copy
from .stock import is_absent, prompt_learned, unwrap
from .ways import is_to_be_verified

_REASON = 300
"""Most characters quoted from another library's message."""
_TOKENIZERS = frozenset(["vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "tekken.json"])
"""Tokenizer files without "token" in their names."""
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")


def load(name: Any, tokenizer: Any, options: LoadOptions) -> tuple[Any, Any]:
    """Load a model and, unless given, its tokenizer by name or path.

    Raises OptionError if loading fails, ModelError for an invalid GGUF file.
    """
    path = place_of(name, "model")
    if is_gguf(path):
        return _of_gguf(path, tokenizer, options)
    if os.path.isdir(path):
        _check_folder(Path(path), needs_tokenizer=tokenizer is None)
        if options.revision is not None:
            raise OptionError(f"revision={options.revision!r}: {path!r} is a folder, which has no revisions")
    adapter = None if options.adapter is None else _adapter(options.adapter)
    import transformers

    hub: Any = transformers
    try:
        config = hub.AutoConfig.from_pretrained(path, **options.of_config)
        auto = _auto_of(config, options)
        with _quiet_outside_terminals():
            if options.weights is None:
                model = auto.from_pretrained(path, **options.of_weights)
            else:
                model = load_quantized(path, config, auto, options)
        if options.device is not None:
            model = model.to(options.device)
        if tokenizer is None:
            source = hub.AutoTokenizer if family_of(config) is None else hub.AutoProcessor
            tokenizer = source.from_pretrained(path, **options.of_config)
            # silences a warning: the engine refuses prompts beyond the context
            warned = _reader_of(tokenizer).deprecation_warnings
            warned["sequence-length-is-longer-than-the-specified-maximum"] = True
    except TrellmError:
        raise
    except Exception as error:  # the library and its dependencies raise various exceptions
        raise OptionError(_load_error_message(path, error, options)) from error
    if options.adapter is not None:
        model = _with_adapter(model, options.adapter, adapter)
    return model, tokenizer


def _auto_of(config: Any, options: LoadOptions) -> Any:
    """Return the transformers class that loads models of a configuration. Raises OptionError for unsupported ones."""
    hub: Any = import_module("transformers")
    if getattr(config, "is_encoder_decoder", False):
        return hub.AutoModelForSeq2SeqLM
    check_family(config)
    _check_quantizable(config, options.weights)
    family = family_of(config)
    if family is None:
        return hub.AutoModelForCausalLM
    return hub.AutoModelForImageTextToText if "image" in family.reads else hub.AutoModelForSeq2SeqLM


def _check_quantizable(config: Any, weights: str | None) -> None:
    """Raise OptionError for quantization of a multimodal model."""
    if weights is not None and family_of(config) is not None:
        raise OptionError(
            f"weights={weights!r}: the weights of models that read images or audio, such as {config.model_type}, are "
            "not quantized; leave the option out"
        )


def _of_gguf(path: str, tokenizer: Any, options: LoadOptions) -> tuple[Any, Any]:
    """Load a GGUF file. Raises OptionError for unsupported options, ModelError for the file.

    On a CPU with float32 states the weights stay quantized; for other devices or dtypes they are unpacked.
    """
    for name in options.changed:
        if name not in ("device", "dtype", "trust_remote_code", "kv_cache_dtype", "adapters"):
            raise OptionError(
                f"{name}={brief(getattr(options, name))}: a model of a GGUF file has its weights, configuration and "
                "tokenizer from the file; leave the option out"
            )
    device = torch.device("cpu") if options.device is None else options.device
    usual = "float32" if device.type == "cpu" else "bfloat16"
    dtype = str(usual if options.dtype == "auto" else options.dtype).removeprefix("torch.")
    stays = (device.type, dtype) == ("cpu", "float32")
    model, file_tokenizer = load_gguf(path, None if stays else getattr(torch, dtype), for_kernels=stays)
    return model.to(device), file_tokenizer if tokenizer is None else tokenizer


def load_decoder(folder: Path, *, device: Any, dtype: Any) -> DecoderModel:
    """Load a decoder-only model with its tokenizer from a folder."""
    model, tokenizer = load(folder, None, LoadOptions(device=device, dtype=dtype))
    return DecoderModel(model, tokenizer)


def wrap(
    model: Any, tokenizer: Any, options: LoadOptions, *, cache: bool, weights: str | None = None
) -> DecoderModel | EncoderDecoderModel:
    """Wrap a loaded model. cache: as for `DecoderModel`; weights: quantizes the model first

    Raises OptionError unless the arguments are a model and its tokenizer.
    """
    _check_pair(model, tokenizer)
    adapters, kv_cache_dtype = options.adapters, options.kv_cache_dtype
    _check_quantizable(model.config, weights)
    if isinstance(model, GGUFNetwork) and (not cache or adapters or is_to_be_verified()):
        model = model.transformers_model
    model = unwrap(model if weights is None else quantized_copy(model, weights))
    warn_of(model, _reader_of(tokenizer))
    is_encoder_decoder = getattr(model.config, "is_encoder_decoder", False)
    if is_encoder_decoder and not cache:
        raise OptionError(f"cache=False: {type(model).__name__} is an encoder-decoder model, which runs with a cache")
    if is_encoder_decoder and kv_cache_dtype != "auto":
        raise OptionError(
            f"kv_cache_dtype={kv_cache_dtype!r}: {type(model).__name__} is an encoder-decoder model, whose keys and "
            "values stay in its own type; leave the option out"
        )
    if is_encoder_decoder and adapters:
        raise OptionError(
            f"adapters=: {type(model).__name__} is an encoder-decoder model, which runs with one adapter only; give it "
            "as adapter="
        )
    try:
        if is_encoder_decoder:
            return EncoderDecoderModel(model, tokenizer)
        return DecoderModel(model, tokenizer, cache=cache, kv_cache_dtype=kv_cache_dtype, adapters=adapters)
    except TrellmError:
        raise
    except Exception as error:  # architectures raise various exceptions when they first run
        message = f"{type(model).__name__} cannot be run ({_cause(error)}); see whether its own `generate` runs"
        raise OptionError(message) from error


def wrap_gguf(path: str, tokenizer: Any, options: LoadOptions, *, cache: bool) -> DecoderModel | EncoderDecoderModel:
    """Load and wrap a GGUF file with any file name. Raises the errors of `load_gguf` and `wrap`."""
    return wrap(*_of_gguf(path, tokenizer, options), options, cache=cache)


def _adapter(place: str) -> Any:
    """Return the configuration of a PEFT adapter. Raises OptionError."""
    if find_spec("peft") is None:
        raise OptionError("adapter= needs the package peft, which is not installed: pip install peft")
    if os.path.isdir(place) and not os.path.isfile(os.path.join(place, "adapter_config.json")):
        raise OptionError(f"the folder {place!r} has no adapter_config.json, and so no adapter of PEFT")
    peft: Any = import_module("peft")
    try:
        config = peft.PeftConfig.from_pretrained(place)
    except Exception as error:  # as for models
        raise OptionError(_adapter_error_message(place, error)) from error
    if getattr(config, "is_prompt_learning", False):
        raise OptionError(prompt_learned(f"the adapter {place!r}", config))
    return config


def _with_adapter(model: Any, place: str, config: Any) -> Any:
    """Merge an adapter into a model, or add it beside quantized weights. Raises OptionError."""
    if any(weights.device.type == "meta" for weights in model.parameters()):
        raise OptionError(
            "adapter= needs the model's weights, some of which device_map= leaves on the disk or another device until "
            "they are used; merge the adapter into the model first, and save that"
        )
    peft: Any = import_module("peft")
    try:
        wrapped = peft.PeftModel.from_pretrained(model, place, config=config)
        merge = None if getattr(model, "hf_quantizer", None) is not None else getattr(wrapped, "merge_and_unload", None)
        return wrapped if merge is None else merge()
    except Exception as error:  # as for models
        raise OptionError(_adapter_error_message(place, error)) from error


def _adapter_error_message(place: str, error: Exception) -> str:
    return (
        f"the adapter {place!r} cannot be loaded ({_cause(error)}); see to it that it was trained for this model, and "
        "that the folder or the name on the Hub is right"
    )


def _check_folder(folder: Path, *, needs_tokenizer: bool) -> None:
    config = folder / "config.json"
    if not config.is_file():
        raise OptionError(f"the folder {str(folder)!r} has no config.json, and so no model of transformers")
    try:
        content: Any = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"{str(config)!r} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise OptionError(f"{str(config)!r} is no JSON object, and so no configuration of a model")
    if not any(file.name.endswith(_WEIGHTS) for file in folder.iterdir()):
        raise OptionError(f"the folder {str(folder)!r} has no weights, such as model.safetensors")
    if needs_tokenizer and not any(_is_of_tokenizer(file.name) for file in folder.iterdir()):
        raise OptionError(
            f"the folder {str(folder)!r} has no tokenizer, such as tokenizer.json: save it there with "
            "tokenizer.save_pretrained(folder), or give tokenizer="
        )


def _is_of_tokenizer(name: str) -> bool:
    return "token" in name or name in _TOKENIZERS or name.endswith((".spm", ".model", ".tiktoken"))


@contextmanager
def _quiet_outside_terminals() -> Generator[None]:
    """Return a context manager that disables transformers' progress bars if standard error is not a terminal."""
    logging: Any = import_module("transformers.utils.logging")
    is_quiet = not sys.stderr.isatty() and logging.is_progress_bar_enabled()
    if is_quiet:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_quiet:
            logging.enable_progress_bar()


def _load_error_message(path: str, error: Exception, options: LoadOptions) -> str:
    if "trust_remote_code" in str(error) and not options.trust_remote_code:
        return (
            f"the model {path!r} brings Python code of its own ({type(error).__name__}); read it, and pass "
            "trust_remote_code=True to let it run"
        )
    others = [f"{name}=" for name in options.changed if name not in ("dtype", "adapter", "device", "kv_cache_dtype")]
    fit = f"; see to it that {', '.join(others)} fit the model and what is installed" if others else ""
    if os.path.isdir(path):
        fit = fit or "; save it again, or fetch its files again"
        return f"the model in {path!r} cannot be loaded ({_cause(error)}){fit}"
    return (
        f"the model {path!r} cannot be loaded ({_cause(error)}); there is no such folder here, so that it was looked "
        f"for on the Hugging Face Hub: see to it that the name is right and the Hub can be reached, or give a "
        f"folder{fit}"
    )


def _cause(error: Exception) -> str:
    message = " ".join(str(error).split())
    message = message if len(message) <= _REASON else f"{message[:_REASON]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _reader_of(tokenizer: Any) -> Any:
    """Return the tokenizer, or that of a processor."""
    return tokenizer.tokenizer if is_processor(tokenizer) else tokenizer


def _check_pair(model: Any, tokenizer: Any) -> None:
    """Raise OptionError unless these are a loaded model and a tokenizer, in this order."""
    if isinstance(model, (tuple, list)):
        raise OptionError(
            "the model and its tokenizer are two arguments, not one: models.transformers(model, tokenizer)"
        )
    is_model = isinstance(model, torch.nn.Module) and hasattr(model, "config")
    if not is_model and isinstance(tokenizer, torch.nn.Module):
        raise OptionError("the model comes first: models.transformers(model, tokenizer); swap the two")
    if not is_model:
        raise OptionError(
            f"model={shown(model)}: a name, a folder, or a loaded model of transformers with its tokenizer"
        )
    if tokenizer is None:
        raise OptionError("a model object needs its tokenizer: models.transformers(model, tokenizer)")
    if isinstance(tokenizer, str) or not callable(getattr(_reader_of(tokenizer), "encode", None)):
        raise OptionError(
            f"tokenizer={shown(tokenizer)}: a loaded tokenizer, such as transformers.AutoTokenizer.from_pretrained(...)"
        )
    if is_absent(model):
        raise OptionError("the model's weights are on the device 'meta', which has no values; load them first")
