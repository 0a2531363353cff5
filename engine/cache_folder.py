"""The folder for what is kept on the disk between runs, and can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError


def cache_folder(name: str) -> Path:
    """The folder of this name in `$TRELLM_HOME`, `$XDG_CACHE_HOME/trellm` or `~/.cache/trellm`; it need not be there.

    Variables that are empty count as absent, and so does a relative path in the second, as its specification says.
    Raises ModelError where none of them is known.
    """
    if own := os.environ.get("TRELLM_HOME"):
        return Path(os.path.abspath(os.path.expanduser(own)), name)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):
        raise ModelError("models are kept in the home directory, which is unknown here; set TRELLM_HOME to a folder")
    return Path(cache, "trellm", name)
