"""The attention span of a model's layers, and the context length of its texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....errors import OptionError


@dataclass(frozen=True)
class AttentionSpan:
    """The attention span of a layer: `window` tokens, or from the start of the current block of `chunk` tokens."""

    window: int | None = None
    chunk: int | None = None

    @property
    def longest(self) -> int | None:
        """The most tokens that any token attends to; None for unbounded."""
        return min((size for size in (self.window, self.chunk) if size is not None), default=None)

    def begin(self, position: int) -> int:
        """Return the first position that the token at a position attends to."""
        begin = 0 if self.window is None else max(0, position - self.window + 1)
        return begin if self.chunk is None else max(begin, position // self.chunk * self.chunk)

    def allowed(self, positions: Tensor, end: int, first: int = 0) -> Tensor:
        """Return bool [rows, 1, width, end - first]: the tokens from `first` on that those at `positions` attend to.

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
    """A layer's memory of a text: keys and values within a reach, a number of states, both, or neither."""

    reach: AttentionSpan | None = None
    states: int = 0


def kind_of(name: str, config: Any) -> LayerMemory:
    """Return the memory of a layer type of the configuration. Raises OptionError for an unknown type."""
    window: int | None = getattr(config, "sliding_window", None)
    states: int = getattr(config, "number_of_conv_states", 1)
    match name:
        case "full_attention":
            return LayerMemory(AttentionSpan())
        case "sliding_attention":
            return LayerMemory(AttentionSpan(window=window))
        case "chunked_attention":
            return LayerMemory(AttentionSpan(chunk=getattr(config, "attention_chunk_size", None)))
        case "linear_attention" | "conv":
            return LayerMemory(states=states)
        case "hybrid":
            return LayerMemory(AttentionSpan(), states)
        case "hybrid_sliding":
            return LayerMemory(AttentionSpan(window=window), states)
        case "moe" | "mlp":
            return LayerMemory()
        case _:
            raise OptionError(
                f"layers of kind {name!r} keep other things than keys, values and states; pass cache=False to run "
                "this architecture, slowly, without a cache"
            )


def reaches(config: Any) -> dict[str, AttentionSpan]:
    """Return the reach of each attention layer type. Raises OptionError as `kind_of` does."""
    window: int | None = getattr(config, "sliding_window", None)
    chunk: int | None = getattr(config, "attention_chunk_size", None)
    names: list[str] | None = getattr(config, "layer_types", None)
    if names is None:
        return {"all": AttentionSpan(window=window, chunk=None if window is not None else chunk)}
    kinds = {name: kind_of(name, config) for name in names}
    return {name: kind.reach for name, kind in kinds.items() if kind.reach is not None}


def layer_kinds(config: Any) -> list[LayerMemory]:
    """Return the memory of each layer, in order. Raises OptionError as `kind_of` does."""
    names: list[str] | None = getattr(config, "layer_types", None)
    count: int = config.num_hidden_layers
    if names is None:
        return [LayerMemory(reaches(config)["all"])] * count
    return [kind_of(name, config) for name in names[:count]]


def layer_reaches(config: Any) -> list[AttentionSpan]:
    """Return the reach of each layer of a model with attention layers only. Raises OptionError as `kind_of` does."""
    found = [kind.reach for kind in layer_kinds(config) if kind.reach is not None and not kind.states]
    if len(found) < config.num_hidden_layers:
        raise OptionError("layers that keep a state, or nothing, are read in another way")
    return found


def unscaled_context(config: Any) -> int | None:
    """Return the greatest length in tokens with one scaling of rotary embeddings; None for unbounded.

    LongRoPE has two sets of frequencies, for texts up to `original_max_position_embeddings` and for longer ones.
    Dynamic NTK scaling depends on each length beyond `max_position_embeddings`. transformers uses one scaling for all
    rows of a pass, and cached keys keep theirs, so longer texts would depend on the batch.
    """
    limits: list[int] = []
    # MPT has attention biases for `max_seq_len` tokens.
    for name in ("max_position_embeddings", "max_seq_len"):
        if (context := getattr(config, name, None)) is not None and context > 0:  # XLNet has -1 for no limit
            limits.append(context)
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kinds: list[Any] = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    for kind in kinds:
        if kind.get("rope_type") == "longrope" and (original := kind.get("original_max_position_embeddings")):
            limits.append(original)
    return min(limits, default=None)
