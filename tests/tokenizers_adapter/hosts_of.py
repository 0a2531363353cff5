"""Where libraries lie that need not be installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest


def path_of(library: str) -> str:
    """The folder that a library is imported from: installed, or TRELLM_HOSTS/LIBRARY; skips where it is nowhere."""
    spec = find_spec(library)
    if spec is not None and spec.origin:
        return str(Path(spec.origin).parents[1])
    folder = Path(os.environ.get("TRELLM_HOSTS", os.devnull)) / library
    if not (folder / library).is_dir():
        pytest.skip(f"{library} is not installed, and TRELLM_HOSTS names no folder with {library}/{library}")
    return str(folder)
