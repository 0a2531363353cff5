"""Generation configs of transformers: EOS, suppressed tokens, and defaults that callers have to pass themselves.

docs/search.md describes the treatment of each field.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ...guides.protocol import Mask, mask_of
from ...sampling import SAMPLE_OPTIONS
from ...tokenizers_adapter import Vocabulary

_NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "num_beams": 1, "length_penalty": 1.0, "early_stopping": False,
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0, "max_length": 20,
    "top_h": 1.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0, "guidance_scale": 1.0, "num_beam_groups": 1, "diversity_penalty": 0.0,
    "num_return_sequences": 1, "renormalize_logits": False, "remove_invalid_values": False,
}  # fmt: skip
"""Neutral values. None is neutral for every field."""
_FACTS = (
    "eos_token_id", "bos_token_id", "decoder_start_token_id", "suppress_tokens", "begin_suppress_tokens",
    "bad_words_ids",
)  # fmt: skip
_OPTIONS = {
    "repetition_penalty": "repetition_penalty", "no_repeat_ngram_size": "no_repeat_ngram_size",
    "min_length": "min_tokens", "min_new_tokens": "min_tokens", "max_length": "max_tokens",
    "max_new_tokens": "max_tokens", "stop_strings": "stop",
}  # fmt: skip
_OF_BEAMS = ("length_penalty", "early_stopping")
_MISSING = (
    "sequence_bias", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
    "guidance_scale", "penalty_alpha", "dola_layers", "watermarking_config", "constraints", "force_words_ids",
    "renormalize_logits", "max_time", "remove_invalid_values",
)  # fmt: skip
_MISSING_OF_SAMPLES = ("top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_MISSING_OF_BEAMS = ("num_beam_groups", "diversity_penalty")
_SEARCHES = ("do_sample", "num_beams", "num_return_sequences")
_MEANINGLESS = (
    "pad_token_id", "use_cache", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory",
    "compile_config", "disable_compile", "continuous_batching_config", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "output_logits", "token_healing", "transformers_version", "is_assistant",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit",
    "assistant_lookbehind", "assistant_ensemble_weight", "target_lookbehind", "prompt_lookup_num_tokens",
    "max_matching_ngram_size", "speculation_type", "use_mtp",
)  # fmt: skip
"""Fields without effect here: memory, speed, output formats, draft models (only a call can give one), and token
healing, which is on by default."""
_SPECIAL = ("forced_bos_token_id", "forced_eos_token_id", "cache_implementation")
"""Fields that `warn_of` reports for some models or values only."""
FIELDS = frozenset(
    (*_FACTS, *_OPTIONS, *SAMPLE_OPTIONS, *_OF_BEAMS, *_MISSING, *_MISSING_OF_SAMPLES, *_MISSING_OF_BEAMS, *_SEARCHES,
     *_MEANINGLESS, *_SPECIAL)
)  # fmt: skip
"""The fields with a known treatment. Other fields of a config are reported."""
_TOP_K = 50
"""transformers' default of top_k for sampling."""


def eos_ids(model: Any, tokenizer: Any) -> list[int] | None:
    """Return the EOS ids of the model's own `generate`; None to use the tokenizer's."""
    configured: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if configured is None:
        return None
    ids: list[int] = [configured] if isinstance(configured, int) else list(configured)
    tokenizer_eos: int | None = getattr(tokenizer, "eos_token_id", None)
    return ids if tokenizer_eos is None or tokenizer_eos in ids else [*ids, tokenizer_eos]


def suppressed_of(model: Any, size: int) -> SuppressedTokens:
    """Return the tokens that the model's own `generate` suppresses. size: of the vocabulary"""
    config: Any = getattr(model, "generation_config", None)
    listed = getattr(config, "bad_words_ids", None) or ()
    sequences = [tuple(ids) for ids in listed if ids and all(0 <= token < size for token in ids)]
    always = [*_ids(config, "suppress_tokens", size), *(ids[0] for ids in sequences if len(ids) == 1)]
    several = tuple(ids for ids in sequences if len(ids) > 1)
    return SuppressedTokens(frozenset(always), frozenset(_ids(config, "begin_suppress_tokens", size)), several)


def begin_of(model: Any, size: int) -> int | None:
    """Return the BOS token of the model's configs; None unless it is one of `size` tokens."""
    for config in (getattr(model, "generation_config", None), model.config.get_text_config()):
        found: Any = getattr(config, "bos_token_id", None)
        if isinstance(found, int) and 0 <= found < size:
            return found
    return None


def answers_bare(model: Any) -> bool:
    """Test whether the model was trained to answer chats with the answer alone. Quotations then need no frame."""
    return getattr(getattr(model, "generation_config", None), "answers_bare", None) is True


def forces_end(model: Any, tokenizer: Any) -> bool:
    """Test whether the model's own `generate` forces EOS as the last token of a free text's budget."""
    forced = _as_list(getattr(getattr(model, "generation_config", None), "forced_eos_token_id", None))
    ends = eos_ids(model, tokenizer) or _as_list(getattr(tokenizer, "eos_token_id", None))
    return bool(forced) and set(forced) <= set(ends)


def warn_of(model: Any, tokenizer: Any) -> None:
    """Warn of defaults of a model's generation config that callers have to pass themselves."""
    config: Any = getattr(model, "generation_config", None)
    is_random, width = bool(getattr(config, "do_sample", None)), getattr(config, "num_beams", None) or 1
    options = [f"{ours}={value!r}" for name, ours in _OPTIONS.items() if (value := _value(config, name)) is not None]
    several = _format_fields(config, ["num_return_sequences"], "n")
    if width > 1:
        options.insert(0, f"search=Beam({', '.join([str(width), *_format_fields(config, _OF_BEAMS), *several])})")
    elif is_random:
        sampling = _format_fields(config, SAMPLE_OPTIONS)
        top_k = [f"top_k={_TOP_K}"] if getattr(config, "top_k", None) is None else []
        options.insert(0, f"search=Sample({', '.join([*sampling, *top_k, *several])})")
    names = [*_MISSING, *(_MISSING_OF_SAMPLES if is_random else ()), *(_MISSING_OF_BEAMS if width > 1 else ())]
    if width > 1 and is_random:  # transformers has no sampling with beams
        names = ["do_sample", *SAMPLE_OPTIONS, *names]
    if not getattr(model.config, "is_encoder_decoder", False):
        names.append("forced_bos_token_id")
    if not forces_end(model, tokenizer):
        names.append("forced_eos_token_id")
    if getattr(config, "cache_implementation", None) == "quantized":
        names.append("cache_implementation")
    fields = [] if config is None else list(cast("dict[str, Any]", vars(config)))
    names += [name for name in fields if name not in FIELDS and name != "answers_bare" and not name.startswith("_")]
    missing = _format_fields(config, names)
    advice = [f"give {', '.join(options)} to calls, or leave it"] if options else []
    advice += [f"{', '.join(missing)} have no effect"] if missing else []
    if advice:
        warnings.warn(
            f"{type(model).__name__}: the generation config has defaults that its own generate() takes and trellm, "
            f"which is greedy unless told otherwise, does not: {'; '.join(advice)}. See docs/search.md",
            stacklevel=4,
        )


def _value(config: Any, name: str) -> Any:
    """Return a field; None if it is neutral."""
    value = getattr(config, name, None)
    return None if value == _NEUTRAL.get(name) or (name == "top_k" and not value) else value


def _format_fields(config: Any, names: Iterable[str], label: str | None = None) -> list[str]:
    return [f"{label or name}={value!r}" for name in names if (value := _value(config, name)) is not None]


def _as_list(ids: Any) -> list[int]:
    """Return a field that is a token, several, or None, as a list."""
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def _ids(config: Any, name: str, size: int) -> list[int]:
    """Return a field that is a list of tokens, without unknown ones."""
    return [token for token in getattr(config, name, None) or () if 0 <= token < size]


class SuppressedTokens(NamedTuple):
    """Tokens that a generation config suppresses. They are only chosen if a constraint allows no others.

    always: at each position; first: as first token of an output; sequences: the last token of each after its others
    """

    always: frozenset[int] = frozenset()
    first: frozenset[int] = frozenset()
    sequences: tuple[tuple[int, ...], ...] = ()

    def of(self, vocabulary: Vocabulary) -> SuppressedTokens:
        """Return the suppressed tokens that a constraint can allow: those with bytes, and EOS tokens."""
        eos = frozenset(vocabulary.eos_ids)

        def possible(tokens: Iterable[int]) -> frozenset[int]:
            return frozenset(token for token in tokens if token in eos or vocabulary.tokens[token])

        return SuppressedTokens(
            possible(self.always), possible(self.first), tuple(ids for ids in self.sequences if possible(ids[-1:]))
        )

    def behind(self, ids: Sequence[int], is_first: bool) -> set[int]:
        """Return the tokens suppressed after `ids`, prompt included."""
        last = {one[-1] for one in self.sequences if tuple(ids[len(ids) - len(one) + 1 :]) == one[:-1]}
        return {*self.always, *last, *(self.first if is_first else ())}

    def narrowed(self, mask: Mask, ids: Sequence[int], is_first: bool, applies: Callable[[int], bool] | None) -> Mask:
        """Return a mask without the tokens suppressed after `ids`, or the mask itself if it would be empty.

        ids: prompt and output; applies: selects suppressed tokens; None for all
        """
        less = mask & ~mask_of(filter(applies, self.behind(ids, is_first)), 32 * len(mask))
        return less if less.any() else mask


NOTHING = SuppressedTokens()
