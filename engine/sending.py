"""Sending to other processes, as a description: what made a thing, which is made again there, once.

Models travel as what loaded them: the function of `models` and its arguments. Generators travel as what they were made
of; the other side makes one when it is first used. Values of callers travel as they are, if they can be imported there.
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
from ..guides.lift.table_guide import Shared, digest_of
from ..guides.locks import new_lock
from .memory.weights import Loaded


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


_MODELS: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
_MAKING = new_lock()


@dataclass(frozen=True)
class Origin:
    """loader: the function of `models` that made a model, which is sent by its name; arguments: as it was called."""

    loader: Callable[..., Any]
    arguments: Mapping[str, Any]

    @cached_property
    def key(self) -> bytes | None:
        """A key that tells origins apart; None where they cannot be compared."""
        return digest_of((self.loader, self.arguments))

    def make(self) -> Any:
        """The model: that of this process, if there is one that was made so, or else a new one."""
        with _MAKING:
            found: Any = None if self.key is None else _MODELS.get(self.key)
            if found is None or found.is_changed:
                found = self.loader(**self.arguments)
            return found

    def sent(self) -> Origin:
        """The same, with arguments that can be sent. Raises OptionError."""
        function = self.loader.__name__
        given = {name: portable(value, f"{name}= of models.{function}") for name, value in self.arguments.items()}
        return Origin(self.loader, given)


class Copied:
    """The base of what is copied as Python copies objects, though it is pickled in another way."""

    def __copy__(self) -> Self:
        made = super().__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = super().__new__(type(self))
        memo[id(self)] = made
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made


class Sendable(Copied):
    """A model that is sent as its origin: what loaded it."""

    origin: Origin | None = None
    """The model's origin; None of one that was made of something that cannot be sent."""
    _loaded: Loaded | None = None

    @property
    def is_changed(self) -> bool:
        """True if its weights are no longer those that its origin leads to."""
        return self._loaded is not None and self._loaded.is_changed

    def made_by(self, loader: Callable[..., Any], arguments: Mapping[str, Any], *, is_shared: bool = True) -> Self:
        """Remember what made the model, for other processes and, where equal ones are shared, for this one."""
        self.origin = Origin(loader, arguments)
        network = getattr(self, "model", None)
        self._loaded = Loaded(network) if isinstance(network, nn.Module) else None
        if is_shared and (key := self.origin.key) is not None and (key not in _MODELS or _MODELS[key].is_changed):
            _MODELS[key] = self
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (origin_of(self),)


def origin_of(model: Any) -> Any:
    """The sent form of a model: its origin, or itself if it is a class of the caller's. Raises OptionError."""
    if not isinstance(model, Sendable):
        return portable(model, "the model")
    if model.origin is None:
        raise OptionError(
            f"{model!r} was made of a loaded model, whose weights do not travel; give its name or a folder, "
            "models.transformers('Qwen/Qwen3-0.6B'), and save it into one first where it has none "
            "(save_pretrained of the model and of its tokenizer)"
        )
    if model.is_changed:
        raise OptionError(
            f"the weights of {model!r} were changed since it was loaded, and do not travel; save it into a folder "
            "(save_pretrained of the model and of its tokenizer), and load that: models.transformers(folder)"
        )
    return model.origin.sent()


def model_of(sent: Any) -> Any:
    """The model that was sent."""
    return sent.make() if isinstance(sent, Origin) else sent


def _made(origin: Origin) -> Any:
    return origin.make()


_ARRIVED: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
_LOCK = new_lock()


class Placeholder(Enum):
    """A stand-in for something that is there already."""

    VOCABULARY = "the model's"


@dataclass(frozen=True)
class UnmadeGuide:
    """The pickled form of a guide, which is not made of it yet."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]

    @classmethod
    def of(cls, guide: Any, vocabulary: Any) -> Any:
        """A guide as it is sent, without the model's vocabulary; one of the caller's own class as it is."""
        if not isinstance(guide, Shared):
            return portable(guide, "the guide")
        make, arguments = cast("tuple[Callable[..., Any], tuple[Any, ...]]", guide.__reduce__()[:2])

        def without(value: Any) -> Any:
            if value is vocabulary:
                return Placeholder.VOCABULARY
            return cls.of(value, vocabulary) if isinstance(value, Shared) else value

        return cls(make, tuple(_each(value, without) for value in arguments))

    def made(self, vocabulary: Any) -> Any:
        """The guide."""

        def there(value: Any) -> Any:
            if value is Placeholder.VOCABULARY:
                return vocabulary
            return value.made(vocabulary) if isinstance(value, UnmadeGuide) else value

        return self.make(*(_each(value, there) for value in self.arguments))


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with a change made to it, or to each of its members by name."""
    if type(value) is dict:
        return {name: change(member) for name, member in cast("dict[Any, Any]", value).items()}
    return change(value)


@dataclass(frozen=True)
class Description:
    """kind: the class of a generator; model: an Origin, or a model; guide: None, an UnmadeGuide, or a guide

    options: what else it was made with, by name
    """

    kind: type[Described]
    model: Any
    guide: Any
    options: Mapping[str, Any]

    @classmethod
    def of(cls, kind: type[Described], model: Any, guide: Any, options: Mapping[str, Any]) -> Description:
        """The description to send. Raises OptionError for what cannot be sent."""
        unmade = None if guide is None else UnmadeGuide.of(guide, model.vocabulary)
        given = {name: portable(value, f"{name}= of the generator,") for name, value in options.items()}
        return cls(kind, origin_of(model), unmade, given)

    @cached_property
    def key(self) -> bytes | None:
        """A key that tells descriptions apart; None where they cannot be compared."""
        return digest_of((self.kind, self.model, self.guide, self.options))

    def made(self) -> Any:
        """A generator of this description."""
        model = model_of(self.model)
        guide = self.guide.made(model.vocabulary) if isinstance(self.guide, UnmadeGuide) else self.guide
        kind: Any = self.kind
        return kind(model, guide, **self.options)


class Described(Copied):
    """The base of what is sent as its description, and made of that in another process when it is first used."""

    _unmade: Description | None = None
    """The description of one that has arrived and is not made yet."""

    @classmethod
    def _arriving(cls, description: Description) -> Self:
        """One that is made when the first of its attributes is asked for."""
        arrived = super().__new__(cls)
        arrived._unmade = description
        return arrived

    if not TYPE_CHECKING:  # to which there would be no unknown attributes any more

        def __getattr__(self, name: str) -> Any:
            """An attribute that is not there yet, since nothing is."""
            if name.startswith("__"):
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            with _LOCK:  # unless another thread has made it
                if self._unmade is not None:
                    vars(self).update(vars(self._unmade.made()))
                    del self._unmade
            return object.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._described() if self._unmade is None else self._unmade,)

    def _described(self) -> Description:
        """The description that another one is made of. Raises OptionError."""
        raise NotImplementedError


def _arrived(description: Description) -> Any:
    """The one of a description in this process."""
    with _LOCK:
        found: Any = None if description.key is None else _ARRIVED.get(description.key)
        if found is None:
            found = description.kind._arriving(description)  # pyright: ignore[reportPrivateUsage]
            if description.key is not None:
                _ARRIVED[description.key] = found
        return found
