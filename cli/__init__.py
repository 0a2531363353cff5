"""The `trellm` command: every subcommand in a file of its own."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
