"""/constraint: what a constraint comes to, without a text of it."""

from __future__ import annotations

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
    service.check_model(asked.model)
    try:
        made = asked.constraint()
    except TrellmError as error:
        raise of_constraint(error, ("trellm", "include")) from None
    generator = await while_connected(request, service.generator(made))
    guide_cache = generator.job((0,), made.goals).guide_cache
    if guide_cache is None:
        return Answer({"expected": "anything", "needed": 0})
    guide = guide_cache.guide
    return Answer({"expected": expected(guide, guide.start), "needed": guide_cache.distance})
