"""Ways to answer tasks: trellm free, by its defaults and by options; other engines are in peers.py."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trellm import generate

from .scoring import parsed, plain
from .tasks import Task

MAX_FREE = 160
"""Tokens of free answers: of those that are right few are longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """value: what the answer is taken for; text: what was written; tokens: of that; seconds: on the wall's clock"""

    value: Any
    text: str
    tokens: int
    seconds: float


Way = Callable[[Any, Task], Answer]


def free(model: Any, task: Task) -> Answer:
    """Without a constraint, by the best parser there is."""
    began = time.perf_counter()
    result = generate.text(model).run(_chat(task), max_tokens=MAX_FREE)
    return Answer(parsed(task, result.text), result.text, len(result.token_ids), time.perf_counter() - began)


def constrained(**options: Any) -> Way:
    """By the generator that a user would take, with options."""

    def answer(model: Any, task: Task) -> Answer:
        began = time.perf_counter()
        generator = _generator(model, task, options)
        result = generator.run(_chat(task))
        value = result.value
        if isinstance(value, datetime.date):
            value = value.isoformat()
        value = getattr(value, "text", value)
        return Answer(
            value, f"{result.thought or ''}|{result.text}", len(result.token_ids), time.perf_counter() - began
        )

    return answer


def probabilities(model: Any, task: Task) -> list[tuple[float, bool, bool]]:
    """Of each field of an answer that stands alone: its probability, whether that is exact, and whether it is right."""
    result = _generator(model, task, {}).run(_chat(task), fields=True)
    gold = task.gold if task.kind == "records" else {"": task.gold}
    found: list[tuple[float, bool, bool]] = []
    for name, expected in gold.items():
        field = result.fields.get(f"/{name}" if name else "")
        if field is not None:
            found.append((field.probability, field.exact, plain(field.value) == plain(expected)))
    return found


def _chat(task: Task) -> Any:
    return [{"role": "user", "content": task.prompt}]


def _generator(model: Any, task: Task, options: dict[str, Any]) -> Any:
    if task.constraint == "json":
        return generate.json(model, task.argument, **options)
    if task.constraint == "extract":
        return generate.extract(model, task.argument, **options)
    if task.constraint == "choice":
        return generate.choice(model, task.argument, **options)
    return generate.format(model, datetime.date if task.constraint == "date" else int, **options)


WAYS: dict[str, Way] = {
    "free": free,
    "default": constrained(),
    "alone": constrained(frame=None),
}
"""By name; options that a kind does not have are errors, and the way is left out there."""
OF_KINDS: dict[str, dict[str, Way]] = {
    "records": {"compact": constrained(whitespace="compact"), "pretty": constrained(whitespace="pretty")},
    "tools": {"compact": constrained(whitespace="compact"), "pretty": constrained(whitespace="pretty")},
    "quotations": {"bold": constrained(frame=("The answer is **", "**"))},
    "choices": {"quoted": constrained(frame=('The answer is "', '"'))},
    "labels": {"quoted": constrained(frame=('The answer is "', '"'))},
    "numbers": {"led": constrained(frame=("The answer is", "."))},
    "problems": {
        "reasoning": constrained(frame="reasoning"),
        "after a marker": constrained(after="answer is", thinking=160, frame=None),
    },
}


def ways_of(kind: str) -> dict[str, Way]:
    """All ways of trellm for a kind."""
    return WAYS | OF_KINDS.get(kind, {})
