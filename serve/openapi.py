"""Routes with request bodies, and the OpenAPI document generated from their shapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .bodies import check_size, read
from .endpoints.answers import Answer
from .endpoints.leasing import leased
from .hosting.manager import ModelManager
from .requests.fields import RequestBase
from .service import Service

T = TypeVar("T", bound=RequestBase)
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "pointer": {"type": "string", "description": "The place in the request, as a JSON pointer"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


class BodyRoute(Route):
    """A route whose requests have a body.

    shape: shape of the body; answer: called with the validated body and the service of its model, once that is loaded
    without: answers requests that need no loaded model; returns None for others
    """

    def __init__(
        self,
        path: str,
        shape: type[T],
        answer: Callable[[Request, Service, T], Awaitable[Response]],
        without: Callable[[ModelManager, T], Response | None] = lambda models, asked: None,
    ) -> None:
        async def endpoint(request: Request) -> Response:
            models: ModelManager = request.app.state.models
            asked = await read(request, shape, models.body_bytes)
            if (answered := without(models, asked)) is not None:
                return answered
            async with leased(request, asked.named_model) as service:
                check_size(request, service.body_bytes)
                return await answer(request, service, asked)

        endpoint.__doc__ = answer.__doc__
        super().__init__(path, endpoint, methods=["POST"])
        self.shape: type[BaseModel] = shape


def openapi(routes: Iterable[Route]) -> Route:
    """Return the route of the OpenAPI document. Summaries are the docstrings of endpoints."""
    several = list(routes)

    @cache
    def document() -> dict[str, Any]:
        return _document([*several, made])

    async def endpoint(request: Request) -> Response:
        """Describe the API as an OpenAPI document."""
        return Answer(document())

    made = Route("/openapi.json", endpoint, methods=["GET"])
    return made


def _document(routes: list[Route]) -> dict[str, Any]:
    shapes = [(route.shape, "validation") for route in routes if isinstance(route, BodyRoute)]
    names, definitions = models_json_schema(shapes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    refused = {"description": "An error", "content": {"application/json": {"schema": {"$ref": _ref("Error")}}}}
    paths: dict[str, Any] = {}
    for route in routes:
        said: dict[str, Any] = {
            "summary": str(route.endpoint.__doc__).partition("\n")[0],
            "responses": {"200": {"description": "The answer"}, "default": refused},
        }
        if isinstance(route, BodyRoute):
            schema = names[route.shape, "validation"]
            said["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if route.param_convertors:
            parameter = {"in": "path", "required": True, "schema": {"type": "string"}}
            said["parameters"] = [{"name": name, **parameter} for name in route.param_convertors]
        methods = sorted((route.methods or set()) - {"HEAD"})
        paths[route.path_format] = {method.lower(): said for method in methods}
    found = {
        "openapi": "3.1.0",
        "info": {"title": "trellm serve", "version": version("trellm")},
        "paths": paths,
        "components": {
            "schemas": {shape["title"]: shape for shape in definitions.get("$defs", {}).values()} | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    titles = {_ref(name): _ref(shape["title"]) for name, shape in definitions.get("$defs", {}).items()}
    return _referring(found, titles)


def _referring(value: Any, names: dict[str, str]) -> Any:
    """Rename references, so that shapes have their titles as names."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {
            name: names.get(each, each) if name == "$ref" else _referring(each, names) for name, each in given.items()
        }
    return [_referring(each, names) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"
