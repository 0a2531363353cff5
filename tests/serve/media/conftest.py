"""A server of a model that reads images, with small bounds."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from trellm import ImageLimits, models

from ..conftest import SETTINGS, Running, running


def seeing() -> Any:
    """The small model as one that reads images: its template writes what they are."""
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
