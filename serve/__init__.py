"""The HTTP server: the engine behind the API of OpenAI, with the constraints of vLLM, SGLang, llama.cpp and our own.

`trellm serve` runs it; `application(model, settings)` is the ASGI application for servers of your own. docs/serve.md
"""

from __future__ import annotations

from .application import application
from .settings import Settings

__all__ = ["Settings", "application"]
