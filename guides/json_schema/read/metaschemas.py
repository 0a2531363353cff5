"""The published metaschemas, known offline so that schemas may refer to them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any


def load(uri: str) -> dict[str, Any] | None:
    """The metaschema (or metaschema of a vocabulary) that has this URI, or None."""
    return _all().get(uri)


@lru_cache(maxsize=1)
def _all() -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name("metaschemas.json").read_text("utf-8"))
