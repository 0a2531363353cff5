"""Decoder-only models of the transformers library, run from our own slots."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelError, OptionError
from ...tokenizers_adapter import Vocabulary
from ..decode.cache import Slots, TokenSlots
from .attention import AttentionMasks
from .eos import eos_ids
from .head import find_head
from .key_values import KeyValueSlots, Placement


class DecoderModel:
    """A model that `AutoModelForCausalLM` loads, with ordinary attention (full, sliding window or chunked).

    cache: False computes every step from the whole text, which works for any decoder.
    """

    def __init__(self, model: Any, tokenizer: Any, *, cache: bool = True) -> None:
        if tokenizer is None:
            raise OptionError("a model object needs its tokenizer: models.transformers(model, tokenizer)")
        config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise OptionError(f"{type(model).__name__} is an encoder-decoder model, not a decoder-only one")
        model.eval()
        self.model = model
        self.tokenizer = tokenizer
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.device: torch.device = model.device
        self._body: Any = model.base_model
        self._cached = cache
        self._layers: int = config.num_hidden_layers
        self._bytes_per_token = 0
        if cache:
            self._masks = AttentionMasks(config, config._attn_implementation, model.dtype)
            if "position_ids" not in inspect.signature(self._body.forward).parameters:
                raise OptionError(
                    f"{type(model).__name__} takes no position_ids, so rows of different lengths cannot "
                    "share a batch; pass cache=False to run it, slowly, without a cache"
                )
        self._probe()
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, self._width, eos_ids(model, tokenizer))

    @torch.inference_mode()
    def _probe(self) -> None:
        """Run four tokens, to learn the width of the logits and whether the head can be called apart.

        With a cache, also read the same tokens in two rows of different lengths, and compare.
        """
        text = [0, 1, 2, 3]
        ids = torch.tensor([text], device=self.device)
        logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0]
        hidden: Any = getattr(self._body(input_ids=ids, use_cache=False), "last_hidden_state", None)
        self._width = logits.shape[-1]
        self._head = None if hidden is None else find_head(self.model, hidden[0], logits)
        # On an accelerator, several small launches cost more than one over all tokens.
        self.sparse_head_limit = (
            self._head.sparse_head_limit if self._head is not None and self.device.type == "cpu" else 0
        )
        if self._cached:
            cache = self.make_cache(2, len(text))
            assert isinstance(cache, KeyValueSlots)
            cache.join(2)
            self.forward([text[:1], text[:3]], cache)
            found = self.logits(self.forward([text[1:3], text[3:]], cache), [0, 1], None)
            self._bytes_per_token = cache.bytes // (2 * (len(text) + 1))
            if (found - logits[2:].float()).abs().max() > 0.1 * logits.float().abs().max():
                raise OptionError(
                    f"{type(self.model).__name__} does not keep apart rows of different lengths in one cache; "
                    "pass cache=False to run it, slowly, without a cache"
                )

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        return f"<DecoderModel {type(self.model).__name__}, {self._width:,} tokens{context}, on {self.device}>"

    def make_cache(self, rows: int, capacity: int) -> Slots:
        """Slots for `rows` rows of `capacity` tokens."""
        return KeyValueSlots(rows, capacity, self._layers) if self._cached else TokenSlots(rows, capacity)

    def cache_bytes(self, rows: int, capacity: int) -> int:
        """Keys and values of all layers for all tokens."""
        return rows * (capacity + 1) * self._bytes_per_token

    def forward(self, chunks: Sequence[Sequence[int]], cache: Slots, first: int = 0) -> Tensor:
        """Hidden states [rows, size] of the last tokens; logits [rows, V] if the head is not apart."""
        if isinstance(cache, TokenSlots):
            for row, chunk in enumerate(chunks, first):
                cache.append(row, chunk)
            texts = cache.tokens[first : first + len(chunks)]
            states = self._run(self._padded(texts), use_cache=False)
            return _tails(states, [len(text) for text in texts])
        assert isinstance(cache, KeyValueSlots)
        lengths = [len(chunk) for chunk in chunks]
        arguments = self._place(lengths, cache, first)
        states = self._run(self._padded(chunks), past_key_values=cache.view, use_cache=True, **arguments)
        for row, length in enumerate(lengths, first):
            cache.lengths[row] += length
        return _tails(states, lengths)

    def logits(self, hidden: Tensor, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Logits of the next token: float32 [len(rows), V] or [len(rows), len(ids)]."""
        chosen = hidden if len(rows) == len(hidden) and list(rows) == list(range(len(rows))) else hidden[list(rows)]
        if self._head is not None:
            return self._head(chosen, ids)
        return chosen.float() if ids is None else chosen.index_select(1, ids).float()

    def _run(self, ids: Tensor, **arguments: Any) -> Tensor:
        if self._head is not None:
            return self._body(input_ids=ids, **arguments).last_hidden_state
        logits: Tensor = self.model(input_ids=ids, **arguments).logits
        if logits.shape[-1] != self._width:
            raise ModelError(f"the model returned {logits.shape[-1]} logits; it began with {self._width}")
        return logits

    def _padded(self, chunks: Sequence[Sequence[int]]) -> Tensor:
        """int64 [rows, width], padded on the right, which causal attention never sees."""
        width = max(map(len, chunks))
        padded = [[*chunk, *[chunk[-1]] * (width - len(chunk))] for chunk in chunks]
        return torch.tensor(padded, device=self.device)

    def _place(self, lengths: Sequence[int], cache: KeyValueSlots, first: int) -> dict[str, Any]:
        """Tell the cache where the tokens go, and return the positions and masks that follow from it."""
        count, width = len(lengths), max(lengths)
        starts = cache.lengths[first : first + count]
        start = starts[0]
        steps = torch.arange(width, device=self.device)
        alike = starts.count(start) == count
        if alike and (start == 0 or lengths.count(width) == count):
            # The model's own causal masks are right here; padding, on the right, is overwritten later.
            cache.place = Placement(first, count, width, start, None, start + width)
            return {"position_ids": (steps + start)[None], "attention_mask": None}
        begin = torch.tensor(starts, device=self.device)[:, None]
        length = torch.tensor(lengths, device=self.device)[:, None]
        positions = begin + torch.minimum(steps, length - 1)
        columns = torch.where(steps < length, positions, cache.capacity)
        end = max(map(sum, zip(starts, lengths, strict=True)))
        cache.place = Placement(first, count, width, None, columns, end)
        return {"position_ids": positions, "attention_mask": self._masks(positions, end)}


def _tails(states: Tensor, lengths: Sequence[int]) -> Tensor:
    """The states [rows, size] of the last of the first `lengths[i]` tokens of each row."""
    if states.shape[1] == 1:
        return states[:, 0]
    return states[torch.arange(len(lengths)), torch.tensor(lengths) - 1]
