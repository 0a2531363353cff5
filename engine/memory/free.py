"""The memory that is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: Any = None) -> int | None:
    """Bytes that can be had on the device, or in main memory; None where the system does not say."""
    if device is not None and torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(found, default=None)


def _free_of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_of_group() -> int | None:
    """Bytes that a container's limit leaves; pages of files that were read count as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - used + int(stat.get("inactive_file", 0))


def shown_size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**28 else f"{count / 2**20:,.1f} MiB"
