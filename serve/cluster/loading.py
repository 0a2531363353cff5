"""Imports of Ray, and models sent to its actors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ...checks import shown
from ...engine.loading_options import LoadingOptions
from ...engine.models import small, transformers
from ...engine.models.load_options import lasting_place
from ...engine.models.protocol import Model
from ...engine.sending import Origin, model_of, origin_of, portable
from ...errors import OptionError


def ray(module: str = "ray") -> Any:
    """Import a module of Ray. Raises OptionError if Ray is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise OptionError(f"{module} needs {error.name}, which is absent: pip install 'trellm[ray]'") from None
        raise OptionError("Ray is absent: pip install 'trellm[ray]'") from None


ModelSource = Model | str | Path | Callable[[], Model] | None
"""A model; a name or folder for transformers; a function that makes a model; None for the small model."""


def pack_model(model: Any, **loading: Any) -> Any:
    """Return the pickled form of a model. loading: see `LoadingOptions`

    Raises OptionError for invalid values, and for models that cannot be sent.
    """
    options = LoadingOptions(**loading)
    if model is None and options.changed.keys() <= {"device", "dtype"}:
        return Origin(small, {"device": options.device})
    if isinstance(model, (str, Path)):
        return Origin(transformers, {"model": lasting_place(model), **options.changed})
    if options.changed:
        raise OptionError(
            "device=, dtype=, kv_cache_dtype=, adapters= and weights= need a model that is given by its name or folder"
        )
    if hasattr(model, "vocabulary"):
        return origin_of(model)
    if not callable(model) or isinstance(model, type):
        raise OptionError(
            f"model={shown(model)}: expected a name or folder of a model of transformers, a loaded model, or a "
            "function that loads one"
        )
    return portable(model, "the function that loads the model,")


def unpack_model(packed: Any) -> Model:
    """Return the model of a pickled form. Raises OptionError if a function returns something else."""
    source: Any = model_of(packed)
    if hasattr(source, "vocabulary"):
        return source
    model = source()
    if not hasattr(model, "vocabulary"):
        raise OptionError(f"the function that loads the model must return a trellm model, not {shown(model)}")
    return model
