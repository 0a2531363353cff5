"""What the checks of every client in Python share: the same passage and questions, and a line of JSON for each check.

Runs in an environment that has the client, which brings pydantic, and nothing of trellm.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel

MODEL = "small"
PASSAGE = (
    "On 3 March 2021, Brela Stonkard bought 12 units of the copper kettle from Velmor Trading for $1,250.50. "
    "The bill has not been paid."
)
ORDER = (
    f"{PASSAGE}\n\nExtract the data from this text as JSON.\nFields: buyer (string), count (integer), paid (boolean)"
)
TIME = "Convert a quarter past four in the afternoon into HH:MM."
WEATHER = "Will it rain in Marlhaven on June 10, 2024?"
DOCUMENTS = ["The copper kettle is new.", "It rained in Marlhaven.", "Who bought the kettle?"]
BUYER, COUNT, PAID = "Brela Stonkard", 12, False
# As the record has it, and as the arguments of a call.
CITY, DAY = "Marlhaven", date(2024, 6, 10)


class Order(BaseModel):
    """An order that a text tells of."""

    buyer: str
    count: int
    paid: bool


class Anything(BaseModel, extra="allow"):
    """What a model of this size makes of a schema in its prompt is its own; that it is an object is the server's."""


EXPECTED = Order(buyer=BUYER, count=COUNT, paid=PAID)


class Checks:
    """Checks of one client; `url` is the server's, with /v1."""

    def __init__(self, client: str) -> None:
        self.url = sys.argv[1]
        self._client = client
        self._found: list[Callable[[], Any]] = []

    def __call__(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """A check passes where it raises nothing, coroutines too. Its docstring is its name, what it returns a note."""
        self._found.append(function)
        return function

    def run(self) -> None:
        """Run all, and print a line for each."""
        for check in self._found:
            told = {"client": self._client, "version": version(self._client), "check": check.__doc__}
            try:
                note = asyncio.run(check()) if inspect.iscoroutinefunction(check) else check()
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
                told |= {"passed": False, "note": f"{said} ({place.filename.rpartition('/')[2]}:{place.lineno})"}
            else:
                told |= {"passed": True, "note": note or ""}
            print(json.dumps(told), flush=True)


def ranked(scores: list[tuple[int, float]]) -> None:
    """Raise AssertionError unless the last document, which is the query, is first, and all are by their scores."""
    values = [score for _, score in scores]
    same((scores[0][0], values), (len(DOCUMENTS) - 1, sorted(values, reverse=True)))
    same(0.999 < values[0] < 1.001, True)


def same(found: Any, expected: Any) -> None:
    """Raise AssertionError where two values differ, with both. Clients make subclasses of a pydantic class."""
    if hasattr(found, "model_dump") and not isinstance(found, type):
        found, expected = found.model_dump(), expected.model_dump()
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")
