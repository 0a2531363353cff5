"""The image-text architectures of transformers that are run, and in what they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from ....errors import OptionError


@dataclass(frozen=True)
class Family:
    """Traits of an architecture, beside what its processor and its `get_image_features` say.

    mutual: which tokens look at one another whatever their order: those of an "image", or all of the "prompt"
    axes: whether rotary positions have several axes, along which rows of images lie
    first: the position of a text's first token
    stacked: the dimension of the processor's arrays along which images lie
    alone: whether the only image of a prompt is read in another way than one beside others
    together: whether the vision part reads several images at once in less time than one after the other
    least: rows that an image has at least; the vision part of transformers fails on a smaller one
    """

    mutual: Literal["", "image", "prompt"] = ""
    axes: bool = False
    first: int = 0
    stacked: int = 0
    alone: bool = False
    together: bool = True
    least: int = 1


_PLAIN = Family()
_AXES = Family(axes=True)
_NESTED = Family(stacked=1)
FAMILIES: Mapping[str, Family] = {
    "llava": _PLAIN,
    "llava_next": _PLAIN,
    "llava_onevision": Family(alone=True),
    "idefics3": _NESTED,
    "smolvlm": _NESTED,
    "qwen2_vl": _AXES,
    "qwen2_5_vl": _AXES,
    "qwen3_vl": _AXES,
    "internvl": _PLAIN,
    "mistral3": Family(together=False, least=2),
    "gemma3": Family(mutual="image"),
    "paligemma": Family(mutual="prompt", first=1),
}
"""By `model_type` of a configuration."""


def family_of(config: Any) -> Family | None:
    """The family of a configuration; None for a model of text alone."""
    return FAMILIES.get(config.model_type)


def check_family(config: Any) -> None:
    """Raise OptionError for an image-text model that is not run, and is no decoder of text that transformers loads."""
    known: Any = import_module("transformers.models.auto.modeling_auto")
    names = known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    is_known = config.model_type in FAMILIES or config.model_type in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if config.model_type in names and not is_known:
        raise OptionError(
            f"{names[config.model_type]} is an image-text architecture that is not run here; those that are: "
            f"{', '.join(sorted(FAMILIES))}"
        )
