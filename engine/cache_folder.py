"""The folder for what is kept on the disk between runs, and can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder of this name in `$TRELLM_HOME`, `$XDG_CACHE_HOME/trellm` or `~/.cache/trellm`; it need not be there.

    Variables that are empty count as absent, and so does a relative path in the second, as its specification says.
    """
    if own := os.environ.get("TRELLM_HOME"):
        return Path(own).expanduser().absolute() / name
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "trellm" / name
