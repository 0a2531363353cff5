"""Schemas of constraints in prompts."""

from __future__ import annotations

import asyncio
from typing import Any

from ...engine.prompts import describe
from ...engine.prompts.description import with_description
from ...engine.prompts.given import Prompt
from ...errors import TrellmError
from ..constraints.constraint import ConstraintSpec
from ..errors import Place, of_constraint, of_request
from ..service import Service


async def described(service: Service, constraint: ConstraintSpec, prompts: list[Any], place: Place) -> list[Any]:
    """Append the constraint's schema to prompts. place: theirs in the request. Raises ApiError."""

    def make() -> list[Prompt]:
        try:
            description = describe(constraint.content)
        except TrellmError as error:
            raise of_constraint(error, constraint.place) from None
        try:
            return [with_description(prompt, description) for prompt in prompts]
        except TrellmError as error:
            raise of_request(error, place) from None

    return await asyncio.get_running_loop().run_in_executor(service.shared.reading, make)
