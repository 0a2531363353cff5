"""Options for loading a model by name, possibly in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LoadingOptions:
    """The options of `models.transformers` that the command, servers and replicas share. They are described there."""

    device: str | None = None
    dtype: str | None = None
    weights: str | None = None
    kv_cache_dtype: str = "auto"
    adapters: Mapping[str, str] | None = None

    @property
    def changed(self) -> dict[str, Any]:
        """Options that differ from their defaults, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, "auto")}
