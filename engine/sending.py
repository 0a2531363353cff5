"""Pickling by description: the receiver rebuilds an object from its origin, once for equal ones.

A model is sent as its loader in `models` with arguments, and a generator as its constructor's arguments, to be built on
first use. Callers' values are sent as they are if the receiver can import them.
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakValueDictionary

from torch import nn

from ..checks import shown
from ..errors import OptionError, TrellmError
from ..guides.lift.table_guide import Immutable, digest_of
from ..guides.locks import new_lock
from .memory.weights import LoadedParameters


@dataclass(frozen=True)
class ByValue:
    """A value in cloudpickle's form, for values that pickle cannot send. It unpickles as the value."""

    data: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)


def portable(value: Any, what: str) -> Any:
    """Return a value that pickle can send, wrapped if only cloudpickle can.

    Values that pickle can send are unchanged: their pickler decides between name and value, as Ray does for scripts.
    Raises OptionError. what: names the value in errors
    """
    try:
        pickle.dumps(value)
        return value
    except TrellmError:
        raise
    except Exception as error:  # pickle raises the exceptions of the objects inside
        cloudpickle = _cloudpickle()
        if cloudpickle is None:
            raise OptionError(_refusal(value, what, error, ", or install cloudpickle")) from error
    try:
        return ByValue(cloudpickle.dumps(value))
    except Exception as error:  # as above
        raise OptionError(_refusal(value, what, error, "")) from error


def _cloudpickle() -> Any:
    """Return cloudpickle, or Ray's copy of it; None if neither is installed."""
    if "ray" in sys.modules:
        return import_module("ray.cloudpickle")
    return None if find_spec("cloudpickle") is None else import_module("cloudpickle")


def _refusal(value: Any, what: str, error: Exception, more: str) -> str:
    message = " ".join(str(error).split())
    return (
        f"{what} {shown(value)} cannot be sent to another process ({type(error).__name__}: {message:.200}); define it "
        f"at the top level of a module{more}"
    )


_MODELS: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
_MAKING = new_lock()


@dataclass(frozen=True)
class Origin:
    """The origin of a model. loader: the function of `models`, sent by name; arguments: of its call"""

    loader: Callable[..., Any]
    arguments: Mapping[str, Any]

    @cached_property
    def key(self) -> bytes | None:
        """A hash of the origin; None if it cannot be hashed."""
        return digest_of((self.loader, self.arguments))

    def make(self) -> Any:
        """Return this process's model of this origin, loaded if missing or changed."""
        with _MAKING:
            found: Any = None if self.key is None else _MODELS.get(self.key)
            if found is None or found.is_changed:
                found = self.loader(**self.arguments)
            return found

    def sent(self) -> Origin:
        """Return the origin with arguments that can be sent. Raises OptionError."""
        function = self.loader.__name__
        arguments = {name: portable(value, f"{name}= of models.{function}") for name, value in self.arguments.items()}
        return Origin(self.loader, arguments)


class Copied:
    """A base class with Python's default copying, for classes with their own pickling."""

    def __copy__(self) -> Self:
        copied = super().__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = super().__new__(type(self))
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


class Sendable(Copied):
    """A model that is pickled as its origin."""

    origin: Origin | None = None
    """The model's origin; None if it cannot be sent."""
    _loaded: LoadedParameters | None = None

    @property
    def is_changed(self) -> bool:
        """True if its weights differ from those that its origin loads."""
        return self._loaded is not None and self._loaded.is_changed

    def made_by(self, loader: Callable[..., Any], arguments: Mapping[str, Any], *, is_shared: bool = True) -> Self:
        """Store the origin of the model. is_shared: this process may reuse the model for equal origins"""
        self.origin = Origin(loader, arguments)
        network = getattr(self, "model", None)
        self._loaded = LoadedParameters(network) if isinstance(network, nn.Module) else None
        if is_shared and (key := self.origin.key) is not None and (key not in _MODELS or _MODELS[key].is_changed):
            _MODELS[key] = self
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_model, (origin_of(self),)


def origin_of(model: Any) -> Any:
    """Return the pickled form of a model: its origin, or itself for a caller's class. Raises OptionError."""
    if not isinstance(model, Sendable):
        return portable(model, "the model")
    if model.origin is None:
        raise OptionError(
            f"{model!r} wraps a loaded model, whose weights are not sent; give its name or a folder, "
            "models.transformers('Qwen/Qwen3-0.6B'), or save it first into a folder (save_pretrained of the model and "
            "of its tokenizer)"
        )
    if model.is_changed:
        raise OptionError(
            f"the weights of {model!r} were changed since it was loaded, and are not sent; save it into a folder "
            "(save_pretrained of the model and of its tokenizer), and load that: models.transformers(folder)"
        )
    return model.origin.sent()


def model_of(sent: Any) -> Any:
    """Return the model of a pickled form."""
    return sent.make() if isinstance(sent, Origin) else sent


def _make_model(origin: Origin) -> Any:
    return origin.make()


_ARRIVED: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
_LOCK = new_lock()


class Placeholder(Enum):
    """A stand-in for an object that the receiver has."""

    VOCABULARY = "the model's"


@dataclass(frozen=True)
class UnbuiltGuide:
    """The pickled form of a guide, not built yet."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]

    @classmethod
    def of(cls, guide: Any, vocabulary: Any) -> Any:
        """Return the pickled form of a guide without the model's vocabulary. A caller's own guide is sent as it is."""
        if not isinstance(guide, Immutable):
            return portable(guide, "the guide")
        make, arguments = cast("tuple[Callable[..., Any], tuple[Any, ...]]", guide.__reduce__()[:2])

        def without(value: Any) -> Any:
            if value is vocabulary:
                return Placeholder.VOCABULARY
            return cls.of(value, vocabulary) if isinstance(value, Immutable) else value

        return cls(make, tuple(_map_members(value, without) for value in arguments))

    def build(self, vocabulary: Any) -> Any:
        """Build the guide."""

        def build_argument(value: Any) -> Any:
            if value is Placeholder.VOCABULARY:
                return vocabulary
            return value.build(vocabulary) if isinstance(value, UnbuiltGuide) else value

        return self.make(*(_map_members(value, build_argument) for value in self.arguments))


def _map_members(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to a value, or to each member of a dict."""
    if type(value) is dict:
        return {name: change(member) for name, member in cast("dict[Any, Any]", value).items()}
    return change(value)


@dataclass(frozen=True)
class Description:
    """The pickled form of a generator.

    kind: its class; model: an Origin, or a model; guide: None, an UnbuiltGuide, or a guide
    options: further constructor arguments by name
    """

    kind: type[Described]
    model: Any
    guide: Any
    options: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[Described], model: Any, guide: Any, options: Mapping[str, Any]) -> Description:
        """Return the description of a generator. Raises OptionError if it cannot be sent."""
        unmade = None if guide is None else UnbuiltGuide.of(guide, model.vocabulary)
        portable_options = {name: portable(value, f"{name}= of the generator,") for name, value in options.items()}
        return cls(kind, origin_of(model), unmade, portable_options)

    @cached_property
    def key(self) -> bytes | None:
        """A hash of the description; None if it cannot be hashed."""
        return digest_of((self.kind, self.model, self.guide, self.options))

    def build(self) -> Any:
        """Build the generator."""
        model = model_of(self.model)
        guide = self.guide.build(model.vocabulary) if isinstance(self.guide, UnbuiltGuide) else self.guide
        kind: Any = self.kind
        return kind(model, guide, **self.options)


class Described(Copied):
    """A base class that is pickled as its description, and built on first use of an attribute."""

    _unbuilt: Description | None = None
    """The description of an unpickled object that is not built yet."""

    @classmethod
    def _arriving(cls, description: Description) -> Self:
        """Return an object that is built on first use of an attribute."""
        arrived = super().__new__(cls)
        arrived._unbuilt = description
        return arrived

    if not TYPE_CHECKING:  # hides __getattr__, which would allow any attribute name

        def __getattr__(self, name: str) -> Any:
            """Build the object, and return its attribute."""
            if name.startswith("__"):
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            with _LOCK:  # another thread may have built it
                if self._unbuilt is not None:
                    vars(self).update(vars(self._unbuilt.build()))
                    del self._unbuilt
            return object.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._described() if self._unbuilt is None else self._unbuilt,)

    def _described(self) -> Description:
        """Return the description of this object. Raises OptionError."""
        raise NotImplementedError


def _arrived(description: Description) -> Any:
    """Return this process's object of a description."""
    with _LOCK:
        found: Any = None if description.key is None else _ARRIVED.get(description.key)
        if found is None:
            found = description.kind._arriving(description)  # pyright: ignore[reportPrivateUsage]
            if description.key is not None:
                _ARRIVED[description.key] = found
        return found
