"""Ray, where it is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import OptionError


def ray(module: str = "ray") -> Any:
    """A module of Ray. Raises OptionError where Ray is absent."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise OptionError(f"{module} needs {error.name}, which is absent: pip install 'trellm[ray]'") from None
        raise OptionError("Ray is absent: pip install 'trellm[ray]'") from None
