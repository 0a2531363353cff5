"""Validation of model loading options."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch

from ...checks import brief, check_bool, check_choice, check_text, shown
from ...errors import OptionError
from ..downloads.registry import pulled_file

DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")
_SHORT = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp64": "float64"}
WEIGHTS = ("q8", "q4")
KV_CACHE_DTYPES = ("auto", "float16", "int8")
_SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of a model given by name; `models.transformers` documents them.

    Raises OptionError for invalid values and for conflicts.
    """

    device: Any = None
    dtype: Any = None
    revision: Any = None
    device_map: Any = None
    attn_implementation: Any = None
    quantization_config: Any = None
    trust_remote_code: Any = False
    adapter: Any = None
    adapters: Any = None
    weights: Any = None
    kv_cache_dtype: Any = "auto"

    def __post_init__(self) -> None:
        if self.device is not None:
            object.__setattr__(self, "device", device_of(self.device))
        object.__setattr__(self, "dtype", dtype_of(self.dtype))
        check_bool(self.trust_remote_code, "trust_remote_code")
        if self.revision is not None:
            _some_text(self.revision, "revision", "a branch, a tag or a commit of the model on the Hub")
        if self.attn_implementation is not None:
            _some_text(self.attn_implementation, "attn_implementation", "'sdpa' or 'eager'")
        if self.quantization_config is not None:
            _check_quantization(self.quantization_config)
        if self.device_map is not None:
            _check_map(self.device_map)
            if self.device is not None:
                raise OptionError("device= and device_map= both say where the model goes; give one of them")
        if self.adapter is not None:
            object.__setattr__(self, "adapter", place_of(self.adapter, "adapter"))
        if self.adapters is not None:
            object.__setattr__(self, "adapters", _adapters(self.adapters))
        check_choice(self.kv_cache_dtype, "kv_cache_dtype", KV_CACHE_DTYPES)
        if self.weights is not None:
            check_choice(self.weights, "weights", WEIGHTS)
            self._check_beside_weights()

    def _check_beside_weights(self) -> None:
        """Raise OptionError for options that conflict with quantized weights."""
        usual = {"device": ("cpu",), "dtype": ("auto", "float32", "torch.float32")}
        for name in ("device", "dtype", "device_map", "quantization_config", "adapter"):
            value = getattr(self, name)
            text = str(value.type if isinstance(value, torch.device) else value)
            if value is not None and text not in usual.get(name, ()):
                raise OptionError(
                    f"{name}={brief(value)} and weights={self.weights!r}: models with quantized weights run on a CPU, "
                    "with states in float32 and no adapter; leave one of the two options out"
                )

    @property
    def changed(self) -> list[str]:
        """Names of the options that differ from their defaults."""
        unlike = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return [name for name in unlike if name != "dtype" or self.dtype != "auto"]

    @property
    def arguments(self) -> dict[str, Any]:
        """The given options by name, with absolute paths, so that other processes can use them."""
        changed = {name: getattr(self, name) for name in self.changed}
        if self.adapter is not None:
            changed["adapter"] = lasting_place(self.adapter, "adapter")
        if self.adapters is not None:
            changed["adapters"] = {name: lasting_place(place, "adapter") for name, place in self.adapters.items()}
        return changed

    @property
    def of_config(self) -> dict[str, Any]:
        """Arguments of transformers for reading the configuration and the tokenizer."""
        return self._select("revision") | {"trust_remote_code": self.trust_remote_code}

    @property
    def of_weights(self) -> dict[str, Any]:
        """Arguments of transformers for reading the weights."""
        return self.of_config | self._select("dtype", "device_map", "attn_implementation", "quantization_config")

    @property
    def of_model(self) -> dict[str, Any]:
        """Arguments of transformers for creating a model without weights."""
        return {"trust_remote_code": self.trust_remote_code} | self._select("attn_implementation")

    def _select(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def dtype_of(dtype: Any) -> Any:
    """Return a dtype or name of one for transformers; "auto" for None. Raises OptionError."""
    if dtype is None:
        return "auto"
    is_known = isinstance(dtype, torch.dtype) or (isinstance(dtype, str) and dtype in DTYPES)
    if not is_known or str(dtype).removeprefix("torch.") not in DTYPES:
        meant = f"; {_SHORT[dtype]!r} is meant?" if isinstance(dtype, str) and dtype in _SHORT else ""
        raise OptionError(f"dtype={brief(dtype)}: one of {', '.join(map(repr, DTYPES))}, or such a torch.dtype{meant}")
    return dtype


def device_of(device: Any) -> torch.device:
    """Return an existing device. Raises OptionError."""
    try:
        if isinstance(device, bool):
            raise TypeError
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise OptionError(f"device={brief(device)}: no device; possible here are {_devices()}") from None
    # torch stores device indices in eight bits
    wanted = re.fullmatch(r"\w+:(\d+)", device) if isinstance(device, str) else None
    if not 0 <= (int(wanted[1]) if wanted else found.index or 0) < _count(found.type):
        raise OptionError(f"device={brief(device)}: there is no such device here; possible are {_devices()}")
    return found


def place_of(name: Any, what: str) -> str:
    """Return the path of an existing folder, GGUF file or pulled model, or else a name on the Hub.

    what: the option in messages. Raises OptionError, and ModelError for a registered model that is not pulled.
    """
    if not isinstance(name, (str, Path)) or not str(name).strip() or "\0" in str(name):
        raise OptionError(f"{what}={shown(name)}: a name on the Hugging Face Hub, or a folder, as a text or a Path")
    text = check_text(str(name), f"the name of the {what}")
    path = os.path.expanduser(text)
    is_file = what == "model" and is_gguf(path) and os.path.isfile(path)
    if os.path.isdir(path) or is_file:  # unlike Path, os.path raises no errors for strange names
        return path
    if os.path.exists(path):
        raise OptionError(f"{what}={text!r} is a file; give the folder that it lies in")
    pulled = pulled_file(text) if what == "model" else None
    if pulled is not None:
        return pulled
    is_path = (
        not isinstance(name, str)
        or is_gguf(text)
        or text.startswith((".", "/", "~", "\\"))
        or text.count("/") > 1
        or "\\" in text
    )
    if is_path:
        raise OptionError(f"{what}={text!r}: there is no such {'file' if is_gguf(text) else 'folder'}")
    return text


def is_gguf(path: str) -> bool:
    """Test whether a path ends like that of a GGUF file."""
    return path.endswith(".gguf")


def path_of_file(path: Any) -> str:
    """Return the absolute path of a file, which may not exist. Raises OptionError for an invalid path."""
    if not isinstance(path, (str, Path)) or "\0" in str(path):
        raise OptionError(f"path={shown(path)}: the path of a file, as a text or a Path")
    return os.path.abspath(os.path.expanduser(check_text(str(path), "the path of the file")))


def lasting_place(name: Any, what: str = "model") -> str:
    """Return `place_of` with an absolute path. Names of pulled models stay names, which other machines also know."""
    place = place_of(name, what)
    return os.path.abspath(place) if os.path.exists(os.path.expanduser(str(name))) else str(name)


def _some_text(value: Any, name: str, what: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{name}={shown(value)}: {what}, as a text")


def _adapters(value: Any) -> dict[str, str]:
    """Return the paths or names of adapters by name. Raises OptionError."""
    what = f"adapters={brief(value)}: folders or names on the Hub by the names of adapters"
    if not isinstance(value, Mapping) or not value:
        raise OptionError(what)
    several = cast("Mapping[Any, Any]", value)
    for name in several:
        if not isinstance(name, str) or not name:
            raise OptionError(f"{what}, which are texts")
        check_text(name, "the name of an adapter")
    return {name: place_of(place, f"adapters[{name!r}]") for name, place in several.items()}


def _check_map(places: Any) -> None:
    """Raise OptionError unless `places` is a device map of accelerate."""
    if isinstance(places, str) and places in _SPREADS:
        return
    kind = f"one of {', '.join(map(repr, _SPREADS))}, a device, or a dict of devices by the names of modules"
    if isinstance(places, Mapping):
        parts = cast("Mapping[Any, Any]", places)
        if not parts or not all(isinstance(name, str) for name in parts):
            raise OptionError(f"device_map={shown(places)}: {kind}")
        for name, place in parts.items():
            if place != "disk":
                _in_map(place, f"device_map[{name!r}]", "a device, or 'disk'")
        return
    _in_map(places, "device_map", kind)


def _in_map(place: Any, name: str, kind: str) -> None:
    if not isinstance(place, (str, int, torch.device)):
        raise OptionError(f"{name}={shown(place)}: {kind}")
    try:
        device_of(place)
    except OptionError as error:
        raise OptionError(f"{name}={shown(place)}: {kind} ({error})") from None


def _check_quantization(config: Any) -> None:
    if isinstance(config, Mapping):
        return
    from transformers.utils.quantization_config import QuantizationConfigMixin

    if not isinstance(config, QuantizationConfigMixin):
        raise OptionError(
            f"quantization_config={shown(config)}: a configuration of transformers, such as BitsAndBytesConfig(...), "
            "or the dict of one"
        )


def _count(kind: str) -> int:
    """Return the number of devices of a type."""
    library: Any = getattr(torch, kind, None)
    if kind == "cpu" or library is None:
        return int(kind == "cpu")
    return library.device_count() if getattr(library, "device_count", None) else 0


def _devices() -> str:
    return ", ".join(repr(kind) for kind in ("cpu", "cuda", "mps", "xpu") if _count(kind))
