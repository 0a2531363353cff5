"""A server of a model that reads images, with small bounds."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from trellm import ImageLimits, models

from ..conftest import SETTINGS, Running, running


def seeing() -> Any:
    """A small random LLaVA; where the engine has no image-text models, the small model with what stands for one."""
    if find_spec("trellm.engine.models.images") is None:
        return _told_of_images()
    from ...engine.image_models import build

    return models.transformers(*build("llava"))


def _told_of_images() -> Any:
    """The small model with a template that writes what images are, by their size and digest."""
    model: Any = copy.copy(models.small())
    tokenizer = copy.deepcopy(model.tokenizer)
    base = type(tokenizer)

    def apply(self: Any, messages: list[dict[str, Any]], **options: Any) -> Any:
        return base.apply_chat_template(
            self, [each | {"content": flat(each["content"])} for each in messages], **options
        )

    def flat(content: Any) -> str:
        if isinstance(content, str):
            return content
        parts = [
            f"[{part['image'].width} x {part['image'].height} {part['image'].digest[:8]}]"
            if part["type"] == "image"
            else part["text"]
            for part in content
        ]
        return "|".join(parts)

    tokenizer.__class__ = type("SeeingTokenizer", (base,), {"apply_chat_template": apply})
    model.__class__ = type("SeeingModel", (type(model),), {"reads_images": property(lambda self: True)})
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def seer() -> Iterator[Running]:
    limits = ImageLimits(file_bytes=1 << 18, pixels=1 << 16, side=1000)
    yield from running(seeing(), replace(SETTINGS, images=4, image_limits=limits, image_bytes=1 << 18))
