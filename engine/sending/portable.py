"""Values of callers that go to another process as they are: functions, types, models and guides of their own."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...checks import shown
from ...errors import OptionError, TrellmError


@dataclass(frozen=True)
class ByValue:
    """A value that pickle alone cannot send, as cloudpickle wrote it; it arrives as the value itself."""

    data: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)


def portable(value: Any, what: str) -> Any:
    """A value, or what arrives as one where pickle cannot send it and cloudpickle is installed.

    What pickle can send is left to whatever pickles it: by name, or, as Ray does with what a script defines, by value.
    Raises OptionError that names the value: `what` it is.
    """
    try:
        pickle.dumps(value)
        return value
    except TrellmError:
        raise
    except Exception as error:  # pickle raises whatever the objects inside do
        cloudpickle = _cloudpickle()
        if cloudpickle is None:
            raise OptionError(_refusal(value, what, error, ", or install cloudpickle")) from error
    try:
        return ByValue(cloudpickle.dumps(value))
    except Exception as error:  # as above
        raise OptionError(_refusal(value, what, error, "")) from error


def _cloudpickle() -> Any:
    """The module that sends functions and classes by value, if it is installed: Ray brings its own."""
    if "ray" in sys.modules:
        return import_module("ray.cloudpickle")
    return None if find_spec("cloudpickle") is None else import_module("cloudpickle")


def _refusal(value: Any, what: str, error: Exception, more: str) -> str:
    said = " ".join(str(error).split())
    return (
        f"{what} {shown(value)} cannot be sent to another process ({type(error).__name__}: {said:.200}); define it at "
        f"the top level of a module{more}"
    )
