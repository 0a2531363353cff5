"""A server of a model that reads images, with small bounds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from trellm import ImageLimits, models

from ...engine.image_models import build
from ..conftest import SETTINGS, Running, running


def seeing() -> Any:
    """A small random LLaVA."""
    return models.transformers(*build("llava"))


@pytest.fixture(scope="module")
def seer() -> Iterator[Running]:
    limits = ImageLimits(file_bytes=1 << 18, pixels=1 << 16, side=1000)
    yield from running(seeing(), replace(SETTINGS, media=4, image_limits=limits, media_bytes=1 << 18))
