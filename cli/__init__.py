"""The `trellm` command: every subcommand in a file of its own.

What a subcommand runs is imported when it runs, so that mistakes and --help need not wait for torch and Numba.
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
