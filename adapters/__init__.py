"""Guides in other engines: bitmasks and sessions for any host, and a module for each supported host.

Names, and hosts, are imported on first use. The package does not load trellm's engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import getter

if TYPE_CHECKING:
    from .bitmask import BitmaskBuffer, allocate_bitmask, fill_bitmask
    from .device_masks import DeviceMasks
    from .session import Session

__all__ = ["BitmaskBuffer", "DeviceMasks", "Session", "allocate_bitmask", "fill_bitmask"]

_HOMES = {
    "BitmaskBuffer": "bitmask",
    "DeviceMasks": "device_masks",
    "Session": "session",
    "allocate_bitmask": "bitmask",
    "fill_bitmask": "bitmask",
}

__getattr__ = getter(__name__, _HOMES)
