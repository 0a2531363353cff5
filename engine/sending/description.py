"""Generators travel as what they were made of; the other side makes one when it is first used, once in a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakValueDictionary

from ...guides.lift.table_guide import Shared, digest_of
from ...guides.locks import new_lock
from .origin import Copied, model_of, origin_of
from .portable import portable

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
