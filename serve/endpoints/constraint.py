"""/constraint: what a constraint comes to, without a text of it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...errors import TrellmError
from ...guides.explain.expectation import expected
from ..bodies import read
from ..errors import of_constraint
from ..requests.constrained import Constraining
from ..service import Service
from .events import Answer, while_connected


class Check(Constraining):
    """The body: the fields of a constraint, as in every request for texts."""

    model: str


async def constraint(request: Request) -> Response:
    """Compile a constraint: how its texts begin, in words, and the fewest tokens of one. Or the error that it has."""
    service: Service = request.app.state.service
    asked = await read(request, Check, service.settings.body_bytes)
    service.check(asked.model)
    try:
        made = asked.constraint()
    except TrellmError as error:
        raise of_constraint(error, ("trellm", "include")) from None
    generator = await while_connected(request, service.generator(made))

    def look() -> dict[str, Any]:
        guide_cache = generator.job((0,), made.goals).guide_cache
        if guide_cache is None:
            return {"expected": "anything", "needed": 0}
        return {"expected": expected(guide_cache.guide, guide_cache.guide.start), "needed": guide_cache.distance}

    # In a compiler's thread, since finding words may take long, and counts as what compilation may take.
    work = service.compiler.made(("expected", made), look, lambda said: len(said["expected"]))
    try:
        return Answer(await while_connected(request, work))
    except TrellmError as error:
        raise of_constraint(error, made.place) from None
