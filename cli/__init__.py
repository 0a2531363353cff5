"""The `trellm` command, with a file for each subcommand.

Subcommands import what they run when they run, so that usage errors and --help do not wait for torch and Numba.
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
