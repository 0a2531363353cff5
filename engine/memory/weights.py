"""Whether a model's weights are still those that keys, values and probabilities were computed with."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import OptionError


class Weights:
    """The weights of a model's module, and which adapters are at work in it; a model without a module never changes.

    Seen are tensors that were written in place (by an optimiser, by loading), others in their place, modules that were
    put in or replaced, adapters of PEFT that were chosen, turned off or merged. Not seen is what goes through `.data`,
    or writes tensors made in inference mode, since torch counts neither. Raises OptionError as `check` does.
    """

    def __init__(self, model: Any) -> None:
        network = getattr(model, "model", None)
        self._network = network if isinstance(network, nn.Module) else None
        self._kind: str | None = getattr(model, "weights_kind", None)
        # What modules hold, in their own dictionaries, which are looked through before every text that comes alone.
        self._children: list[dict[str, nn.Module | None]] = []
        self._weights: list[dict[str, nn.Parameter | None]] = []
        self._adapters: list[dict[str, Any]] = []
        self._structure: list[int] = []
        self.check()

    def state(self) -> int:
        """A number that changes, but for accidents of hashing, when the weights do; some 50 us for 100 modules."""
        if self._network is None:
            return 0
        if not self._structure or self._found() != self._structure:
            modules = list(map(vars, self._network.modules()))
            self._children = [module["_modules"] for module in modules if module["_modules"]]
            self._weights = [module["_parameters"] for module in modules if module["_parameters"]]
            self._adapters = [module for module in modules if "_disable_adapters" in module]
            self._structure = self._found()
        weights = [_written(each) for held in self._weights for each in held.values() if each is not None]
        return hash((*self._structure, *weights, *map(_chosen, self._adapters)))

    def check(self) -> None:
        """Raise OptionError where the weights are of another type, or elsewhere, than when the model was wrapped."""
        now = None if self._network is None or self._kind is None else kind_of(self._network)
        if now is not None and now != self._kind:
            raise OptionError(
                f"the model's weights are {now} now, and were {self._kind} when it was wrapped, which its memory is "
                "made for; wrap it again: models.transformers(model, tokenizer)"
            )

    def _found(self) -> list[int]:
        return [id(child) for held in self._children for child in held.values()]


def kind_of(network: nn.Module) -> str | None:
    """Of which type the first of a network's weights are, and on which device; None where it has none in memory."""
    first = next((weights for weights in network.parameters() if weights.is_floating_point()), None)
    return None if first is None or first.device.type == "meta" else f"{first.dtype} on {first.device}"


def _written(weights: nn.Parameter) -> tuple[int, int]:
    """Where numbers lie, and how often they were written; quantised ones have types of their own, and no such place."""
    place = weights.data_ptr() if type(weights) is nn.Parameter else id(weights)
    return place, 0 if weights.is_inference() else weights._version


def _chosen(layer: dict[str, Any]) -> tuple[bool, str, int]:
    """Which of a layer's adapters are at work; PEFT keeps that in lists of names."""
    return layer["_disable_adapters"], str(layer.get("_active_adapter")), len(layer.get("merged_adapters", ()))
