"""Reach of a model's layers, how far back they look, and how long its texts may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....errors import OptionError


@dataclass(frozen=True)
class Reach:
    """The range that a layer looks back: `window` tokens, or to the start of the current block of `chunk` tokens."""

    window: int | None = None
    chunk: int | None = None

    @property
    def longest(self) -> int | None:
        """The most tokens that any token sees; None without limit."""
        return min((size for size in (self.window, self.chunk) if size is not None), default=None)

    def begin(self, position: int) -> int:
        """The first position that the token at a position sees."""
        begin = 0 if self.window is None else max(0, position - self.window + 1)
        return begin if self.chunk is None else max(begin, position // self.chunk * self.chunk)

    def allowed(self, positions: Tensor, end: int, first: int = 0) -> Tensor:
        """bool [rows, 1, width, end - first]: which of the tokens from `first` on those at `positions` see.

        positions: [rows, width]
        """
        query = positions[:, None, :, None]
        column = torch.arange(first, end, device=positions.device)
        seen = column <= query
        if self.window is not None:
            seen &= column > query - self.window
        if self.chunk is not None:
            seen &= column >= query // self.chunk * self.chunk
        return seen


@dataclass(frozen=True)
class LayerMemory:
    """A layer's memory of a text: keys and values of what its attention sees, so many states, both, or nothing."""

    reach: Reach | None = None
    states: int = 0


def kind_of(name: str, config: Any) -> LayerMemory:
    """Memory of layers of a kind, by its name in the configuration. Raises OptionError for a name that is not known."""
    window: int | None = getattr(config, "sliding_window", None)
    states: int = getattr(config, "number_of_conv_states", 1)
    match name:
        case "full_attention":
            return LayerMemory(Reach())
        case "sliding_attention":
            return LayerMemory(Reach(window=window))
        case "chunked_attention":
            return LayerMemory(Reach(chunk=getattr(config, "attention_chunk_size", None)))
        case "linear_attention" | "conv":
            return LayerMemory(states=states)
        case "hybrid":
            return LayerMemory(Reach(), states)
        case "hybrid_sliding":
            return LayerMemory(Reach(window=window), states)
        case "moe" | "mlp":
            return LayerMemory()
        case _:
            raise OptionError(
                f"layers of kind {name!r} keep other things than keys, values and states; pass cache=False to run "
                "this architecture, slowly, without a cache"
            )


def reaches(config: Any) -> dict[str, Reach]:
    """The reach of each kind of layer that attends. Raises OptionError as `kind_of` does."""
    window: int | None = getattr(config, "sliding_window", None)
    chunk: int | None = getattr(config, "attention_chunk_size", None)
    names: list[str] | None = getattr(config, "layer_types", None)
    if names is None:
        return {"all": Reach(window=window, chunk=None if window is not None else chunk)}
    kinds = {name: kind_of(name, config) for name in names}
    return {name: kind.reach for name, kind in kinds.items() if kind.reach is not None}


def layer_kinds(config: Any) -> list[LayerMemory]:
    """Memory of each layer, in order. Raises OptionError as `kind_of` does."""
    names: list[str] | None = getattr(config, "layer_types", None)
    count: int = config.num_hidden_layers
    if names is None:
        return [LayerMemory(reaches(config)["all"])] * count
    return [kind_of(name, config) for name in names[:count]]


def layer_reaches(config: Any) -> list[Reach]:
    """The reach of each layer of a model all of whose layers attend. Raises OptionError as `kind_of` does."""
    found = [kind.reach for kind in layer_kinds(config) if kind.reach is not None and not kind.states]
    if len(found) < config.num_hidden_layers:
        raise OptionError("layers that keep a state, or nothing, are read in another way")
    return found


def unscaled_context(config: Any) -> int | None:
    """Number of tokens that a text may have without its rotary embeddings being scaled anew; None without limit.

    LongRoPE has two sets of frequencies, for texts up to `original_max_position_embeddings` and for longer ones, and
    dynamic NTK scaling has others for each length past `max_position_embeddings`. transformers chooses one for all
    rows of a pass, the keys of a cache stay as they were written, and so beyond these lengths no text would be
    as if it were alone.
    """
    limits: list[int] = []
    # MPT makes the biases of its attention for so many tokens.
    for name in ("max_position_embeddings", "max_seq_len"):
        if (context := getattr(config, name, None)) is not None and context > 0:  # XLNet says -1 for no limit
            limits.append(context)
    given: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kinds: list[Any] = [given, *(each for each in given.values() if isinstance(each, dict))]
    for kind in kinds:
        if kind.get("rope_type") == "longrope" and (original := kind.get("original_max_position_embeddings")):
            limits.append(original)
    return min(limits, default=None)
