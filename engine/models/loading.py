"""Models of the transformers library: loaded, and put into the adapter that their architecture asks for."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import torch

from ...checks import brief, shown, text_of
from ...errors import OptionError
from .decoder import DecoderModel
from .encoder_decoder import EncoderDecoderModel
from .generation_config import warn_of

DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")
_SHORT = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp64": "float64"}
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")


def load(name: Any, tokenizer: Any, *, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Load a model and, unless given, its tokenizer by name or path. Raises OptionError for what cannot be loaded."""
    place = None if device is None else device_of(device)
    kind = dtype_of(dtype)
    path = _checked(name)
    import transformers

    hub: Any = transformers
    try:
        config = hub.AutoConfig.from_pretrained(path)
        auto = hub.AutoModelForSeq2SeqLM if getattr(config, "is_encoder_decoder", False) else hub.AutoModelForCausalLM
        model = auto.from_pretrained(path, dtype=kind)
        if place is not None:
            model = model.to(place)
        return model, hub.AutoTokenizer.from_pretrained(path) if tokenizer is None else tokenizer
    except Exception as error:  # the library and those below it raise whatever they come upon
        raise OptionError(_why_not(path, error)) from error


def load_decoder(folder: Path, *, device: Any, dtype: Any) -> DecoderModel:
    """The decoder-only model that lies in a folder, with its tokenizer."""
    model, tokenizer = load(folder, None, device=device, dtype=dtype)
    return DecoderModel(model, tokenizer)


def adapted(model: Any, tokenizer: Any, *, cache: bool) -> DecoderModel | EncoderDecoderModel:
    """The model in our hands. Raises OptionError for what is no model with its tokenizer."""
    _check_pair(model, tokenizer)
    warn_of(model)
    if not getattr(model.config, "is_encoder_decoder", False):
        return DecoderModel(model, tokenizer, cache=cache)
    if not cache:
        raise OptionError(f"cache=False: {type(model).__name__} is an encoder-decoder model, which runs with a cache")
    return EncoderDecoderModel(model, tokenizer)


def dtype_of(dtype: Any) -> Any:
    """The type of weights as transformers takes it. Raises OptionError."""
    if dtype is None:
        return "auto"
    is_known = isinstance(dtype, torch.dtype) or (isinstance(dtype, str) and dtype in DTYPES)
    if not is_known or str(dtype).removeprefix("torch.") not in DTYPES:
        meant = f"; {_SHORT[dtype]!r} is meant?" if isinstance(dtype, str) and dtype in _SHORT else ""
        raise OptionError(f"dtype={brief(dtype)}: one of {', '.join(map(repr, DTYPES))}, or such a torch.dtype{meant}")
    return dtype


def device_of(device: Any) -> torch.device:
    """A device that is there. Raises OptionError."""
    try:
        if isinstance(device, bool):
            raise TypeError
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise OptionError(f"device={brief(device)}: no device; possible here are {_devices()}") from None
    # torch keeps the number of a device in eight bits.
    wanted = re.fullmatch(r"\w+:(\d+)", device) if isinstance(device, str) else None
    if not 0 <= (int(wanted[1]) if wanted else found.index or 0) < _count(found.type):
        raise OptionError(f"device={brief(device)}: there is no such device here; possible are {_devices()}")
    return found


def _count(kind: str) -> int:
    """How many devices there are of a kind."""
    library: Any = getattr(torch, kind, None)
    if kind == "cpu" or library is None:
        return int(kind == "cpu")
    return library.device_count() if getattr(library, "device_count", None) else 0


def _devices() -> str:
    return ", ".join(repr(kind) for kind in ("cpu", "cuda", "mps", "xpu") if _count(kind))


def _checked(name: Any) -> str:
    """A name on the Hub, or the path of a folder in which there may be a model. Raises OptionError for other paths."""
    if not isinstance(name, (str, Path)) or not str(name).strip() or "\0" in str(name):
        raise OptionError(f"model={shown(name)}: a name on the Hugging Face Hub, or a folder, as a text or a Path")
    text = text_of(str(name), "the name of the model")
    path = Path(os.path.expanduser(text))
    if os.path.isdir(path):  # unlike a Path, it takes any text
        _check_folder(path)
        return str(path)
    if os.path.exists(path):
        raise OptionError(f"model={text!r} is a file; give the folder with config.json, the weights and the tokenizer")
    is_path = not isinstance(name, str) or text.startswith((".", "/", "~", "\\")) or text.count("/") > 1 or "\\" in text
    if is_path:
        raise OptionError(f"model={text!r}: there is no such folder")
    return text


def _check_folder(folder: Path) -> None:
    config = folder / "config.json"
    if not config.is_file():
        raise OptionError(f"the folder {str(folder)!r} has no config.json, and so no model of transformers")
    try:
        read: Any = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"{str(config)!r} cannot be read as JSON: {error}") from None
    if not isinstance(read, dict):
        raise OptionError(f"{str(config)!r} is no JSON object, and so no configuration of a model")
    if not any(file.name.endswith(_WEIGHTS) for file in folder.iterdir()):
        raise OptionError(f"the folder {str(folder)!r} has no weights, such as model.safetensors")


def _why_not(path: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {brief(said)[1:-1]}" if said else type(error).__name__
    if os.path.isdir(path):
        return f"the model in {path!r} cannot be loaded ({reason}); save it again, or fetch its files again"
    return (
        f"the model {path!r} cannot be loaded ({reason}); there is no such folder here, so that it was looked for on "
        "the Hugging Face Hub: see to it that the name is right and the Hub can be reached, or give a folder"
    )


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
    if isinstance(tokenizer, str) or not callable(getattr(tokenizer, "encode", None)):
        raise OptionError(
            f"tokenizer={shown(tokenizer)}: a loaded tokenizer, such as transformers.AutoTokenizer.from_pretrained(...)"
        )
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise OptionError("the model's weights are on the device 'meta', which has no values; load them first")
