"""Supported multimodal architectures of transformers, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from ....errors import OptionError


@dataclass(frozen=True)
class MediaArchitecture:
    """Properties of an architecture that its processor and feature methods do not have.

    reads: kinds of content besides text, "image" and "audio"
    mutual: tokens with bidirectional attention: those of an "image", or of the whole "prompt"
    axes: True if rotary positions have several axes (time, height, width)
    first: position of a text's first token
    stacked: batch dimension of images in the processor's arrays
    alone: True if the processor treats a prompt's only image differently from several
    together: True if the vision part is faster for a batch of images
    least: fewest rows of a content; transformers' vision part fails on smaller ones
    longest: returns the seconds of audio that a processor does not truncate
    hear: computes audio features as rows, for architectures without `get_audio_features`
    """

    reads: tuple[str, ...] = ("image",)
    mutual: Literal["", "image", "prompt"] = ""
    axes: bool = False
    first: int = 0
    stacked: int = 0
    alone: bool = False
    together: bool = True
    least: int = 1
    longest: Callable[[Any], float] | None = None
    hear: Callable[..., Tensor] | None = None


def _windows(processor: Any) -> float:
    """Return the seconds of the whole audio windows that a processor reads."""
    window: float = processor.feature_extractor.chunk_length
    return processor.max_audio_len // window * window


def _hear_qwen2(part: Any, input_features: Tensor, feature_attention_mask: Tensor) -> Tensor:
    """Compute audio features as inside the forward pass of Qwen2-Audio."""
    masks: Any = import_module("transformers.masking_utils")
    tower = part.audio_tower
    heard = (feature_attention_mask.sum(-1) - 1) // 2 + 1
    frames = input_features.shape[-1] // 2
    seen = torch.arange(frames, device=heard.device) < heard[:, None]
    empty = input_features.new_empty(len(heard), frames, 1)
    mask = masks.create_bidirectional_mask(config=tower.config, inputs_embeds=empty, attention_mask=seen.long())
    found = part.multi_modal_projector(tower(input_features, attention_mask=mask).last_hidden_state)
    rows = (heard - 2) // 2 + 1
    return found[torch.arange(found.shape[1], device=rows.device) < rows[:, None]]


_PLAIN = MediaArchitecture()
_AXES = MediaArchitecture(axes=True)
_NESTED = MediaArchitecture(stacked=1)
FAMILIES: Mapping[str, MediaArchitecture] = {
    "llava": _PLAIN,
    "llava_next": _PLAIN,
    "llava_onevision": MediaArchitecture(alone=True),
    "idefics3": _NESTED,
    "smolvlm": _NESTED,
    "qwen2_vl": _AXES,
    "qwen2_5_vl": _AXES,
    "qwen3_vl": _AXES,
    "internvl": _PLAIN,
    "mistral3": MediaArchitecture(together=False, least=2),
    "gemma3": MediaArchitecture(mutual="image"),
    "paligemma": MediaArchitecture(mutual="prompt", first=1),
    "audioflamingo3": MediaArchitecture(reads=("audio",), longest=_windows),
    "glmasr": MediaArchitecture(reads=("audio",), longest=_windows),
    "qwen2_audio": MediaArchitecture(
        reads=("audio",), longest=lambda processor: processor.feature_extractor.chunk_length, hear=_hear_qwen2
    ),
    "qwen3_asr": MediaArchitecture(reads=("audio",)),
}
"""By `model_type` of a configuration."""


def family_of(config: Any) -> MediaArchitecture | None:
    """Return the family of a configuration; None for text models."""
    return FAMILIES.get(config.model_type)


def check_family(config: Any) -> None:
    """Raise OptionError for an unsupported multimodal model that transformers does not load as a decoder either."""
    known: Any = import_module("transformers.models.auto.modeling_auto")
    names = {**known.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, **known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES}
    is_known = config.model_type in FAMILIES or config.model_type in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if config.model_type in names and not is_known:
        raise OptionError(
            f"{names[config.model_type]} is an architecture for texts and more that is not run here; those that are: "
            f"{', '.join(sorted(FAMILIES))}"
        )
