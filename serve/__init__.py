"""The HTTP server: OpenAI's API on the engine, with the constraints of vLLM, SGLang, llama.cpp and our own.

`trellm serve` runs it; `application(model, settings)` is the ASGI application for other servers. See docs/serve.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import getter

if TYPE_CHECKING:
    from .asgi import application
    from .hosting.hosted import ServedModel
    from .media.fetching import MediaFetcher
    from .settings import Settings

__all__ = ["MediaFetcher", "ServedModel", "Settings", "application"]

# lazy, since tool calls need no server, and starlette is an optional dependency
__getattr__ = getter(
    __name__,
    {
        "MediaFetcher": "media.fetching",
        "ServedModel": "hosting.hosted",
        "Settings": "settings",
        "application": "asgi",
    },
)
