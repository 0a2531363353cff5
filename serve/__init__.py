"""The HTTP server: the engine behind the API of OpenAI, with the constraints of vLLM, SGLang, llama.cpp and our own.

`trellm serve` runs it; `application(model, settings)` is the ASGI application for servers of your own. docs/serve.md
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

# Tool calls need nothing of a server, and starlette is an extra.
__getattr__ = getter(
    __name__,
    {
        "MediaFetcher": "media.fetching",
        "ServedModel": "hosting.hosted",
        "Settings": "settings",
        "application": "asgi",
    },
)
