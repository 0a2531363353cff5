"""A server of a model that reads images, with small bounds."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from trellm import ImageLimits, models
from trellm.serve import MediaFetcher

from ...engine.image_models import build
from ..conftest import SETTINGS, Running, running


def seeing() -> Any:
    """A small random LLaVA."""
    return models.transformers(*build("llava"))


@pytest.fixture(scope="module")
def seer() -> Iterator[Running]:
    limits = ImageLimits(file_bytes=1 << 18, pixels=1 << 16, side=1000)
    yield from running(seeing(), replace(SETTINGS, media=4, image_limits=limits, media_bytes=1 << 18))


def nearby() -> MediaFetcher:
    """A fetcher that takes files of this machine alone, whatever the host is called."""
    return MediaFetcher(allows=lambda address, port: address.is_loopback, resolve=lambda host, port: ["127.0.0.1"])


@contextmanager
def serving(file_at: Callable[[str], tuple[str, bytes]]) -> Iterator[str]:
    """The address of a server of files, on this machine. file_at: type and data of a path's file"""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, data = file_at(self.path)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://files.test:{server.server_port}"
        server.shutdown()
        thread.join()
