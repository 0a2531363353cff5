"""The tables of words (`words.toml`) that names and requests are made of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))

NAMES: dict[str, list[str]] = _TABLES["names"]
"""Syllables and words of names, by what they are for."""
ASKED: dict[str, str] = _TABLES["asked"]
"""What is asked for, as forms, by task."""
ARGUMENTS: dict[str, str] = _TABLES["arguments"]
"""Names of the arguments of tools of no domain, as forms, by slot."""
TOOLS: list[tuple[str, dict[str, str], str]] = [
    (table["name"], table["kinds"], table["requests"]) for table in _TABLES["tools"]
]
"""Tools of no domain: name, kinds of the arguments, and requests, as forms."""
