"""Models travel as what loaded them: the function of `models` and its arguments, called once in each process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from weakref import WeakValueDictionary

from torch import nn

from ...errors import OptionError
from ...guides.lift.table_guide import digest_of
from ...guides.locks import new_lock
from ..memory.weights import Loaded
from .portable import portable

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
