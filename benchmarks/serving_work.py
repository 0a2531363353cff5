"""What servers are asked for in `serve.py`: prompts, and one schema or a hundred."""

from __future__ import annotations

from random import Random
from typing import Any

WORDS = ["kettle", "paid", "river", "copper", "train", "letter", "garden", "winter", "ticket", "lamp"]
NAMES = ["city", "buyer", "count", "price", "paid", "date", "mood", "code", "title", "seats"]


def prompt(number: int) -> str:
    """One of a hundred prompts that the small model has an answer to."""
    first, second = WORDS[number % 10], WORDS[(number // 10 + number) % 10]
    return f"Write a sentence with the words {first}, {second}.\nAnswer: "


def schema(number: int) -> dict[str, Any]:
    """A schema of an object with some fields of bounded size, another for every number."""
    drawn = Random(number)
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 12},
        {"type": "boolean"},
        {"type": "integer", "minimum": 0, "maximum": 10 + number},
        {"enum": ["calm", "joyful", "sad", f"mood {number}"]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    ]
    names = drawn.sample(NAMES, 2 + number % 3)
    return {
        "type": "object",
        "properties": {name: drawn.choice(kinds) for name in names},
        "required": names,
        "additionalProperties": False,
    }
