"""What an answer is worth: whole and in its parts, and whether it is of the form that was asked for at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .text.schemas import fields_of
from .text.tasks import Task


@dataclass
class Score:
    """Counts over the answers to one kind of task.

    right: whole answers; parts, right_parts: fields of records, and one for each other answer;
    formed: answers that are JSON, one of the choices, a quotation, ...: what a constraint makes certain
    """

    answers: int = 0
    right: int = 0
    parts: int = 0
    right_parts: int = 0
    formed: int = 0

    def add(self, task: Task, text: str) -> None:
        """Count one answer, as it was written."""
        value, is_formed = read(task, text)
        expected, found = parts_of(task, task.value), parts_of(task, value) if is_formed else {}
        good = sum(name in found and _same(found[name], each) for name, each in expected.items())
        self.answers += 1
        self.formed += is_formed
        self.parts += len(expected)
        self.right_parts += good
        self.right += good == len(expected) == len(found)

    def shares(self) -> dict[str, float]:
        """The counts as shares."""
        return {
            "whole": self.right / self.answers,
            "fields": self.right_parts / self.parts,
            "formed": self.formed / self.answers,
        }


def read(task: Task, text: str) -> tuple[Any, bool]:
    """The value of an answer, and whether it is of the form that was asked for."""
    name, argument = task.constraint
    text = text.strip()
    if name == "json":
        try:
            return json.loads(text), True
        except ValueError:
            return None, False
    if name == "words":
        return [word for word in argument if word in text], bool(text)
    if name == "choice":
        return text, text in argument
    if name in ("extract", "sentence"):
        return text, bool(text) and text in argument
    answer = text.rpartition("</think>")[2].strip()
    return answer, bool(answer) and all(letter in "0123456789-:." for letter in answer)


def parts_of(task: Task, value: Any) -> dict[str, Any]:
    """What is counted apart: fields of records; everything else is one."""
    if "record" in task.kind:
        return fields_of(value) if isinstance(value, dict) else {}
    return {"": value}


def _same(found: Any, expected: Any) -> bool:
    """Whether two values of JSON are one; unlike for Python, true is not 1."""
    return (type(found) is type(expected) and found == expected) or (_is_number(found, expected) and found == expected)


def _is_number(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
