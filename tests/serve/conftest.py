"""One server of the small model for all tests of this folder, on a loopback port."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpx
import openai
import pytest
from trellm import models
from trellm.serve import Settings, application

from ..thresholds import thresholds
from .support import ModelManager, Server, Service, listen

PASSAGE = (
    "On 3 March 2021, Brela Stonkard bought 12 units of the copper kettle from Velmor Trading for $1,250.50. "
    "The bill has not been paid."
)
# Kernels may have to be compiled by the first test that needs them.
SETTINGS = Settings(aliases=("gpt-4o",), body_bytes=1 << 20, texts=64, choices=16, compile_seconds=300)


@dataclass
class Running:
    """A server that runs in a thread, on an event loop. models: what it works with; service: of the first"""

    url: str
    loop: asyncio.AbstractEventLoop
    models: ModelManager
    client: openai.OpenAI
    http: httpx.Client

    @property
    def service(self) -> Service:
        found = self.models.first.service
        assert found is not None
        return found

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """A request as nobody's client would write it."""
        return self.http.post(path, json=body, **options)

    def error(self, path: str, body: Any, status: int = 400) -> dict[str, Any]:
        """The error that answers a request, which has OpenAI's shape."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.http.post(path, content=data, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert {"message", "type", "param", "code"} <= error.keys()
        return error

    def complete(self, prompt: Any, **body: Any) -> dict[str, Any]:
        """The answer of /v1/completions."""
        answer = self.post("/v1/completions", {"model": "small", "prompt": prompt, "temperature": 0, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def text(self, prompt: Any, **body: Any) -> str:
        """The text of its first choice."""
        return self.complete(prompt, **body)["choices"][0]["text"]

    def events(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """The data of a streamed answer, [DONE] not among it."""
        with self.http.stream("POST", path, json={**body, "stream": True}) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in answer.iter_lines() if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]


HANGS = 120
"""Seconds after which a test hangs that waits for something: many times what it takes."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "the test hangs"
        time.sleep(0.005)


async def turned(condition: Callable[[], bool]) -> None:
    """Wait for what other tasks and threads do, on the event loop."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "the test hangs"
        await asyncio.sleep(0.002)


def running(model: Any, settings: Settings, **options: Any) -> Iterator[Running]:
    """A server on a port of its own, as long as the iterator stands. options: those of `application`"""
    app = application(model, settings, **options)
    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = Server(app, settings)
    # Signals are the main thread's, which is pytest's here.
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server._serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        with httpx.Client(base_url=url, timeout=300) as http:
            assert http.get("/health/ready").json()["status"] == "ok"
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=300)
            with client:
                yield Running(url, loops[0], app.state.models, client, http)
    finally:
        server.should_exit = True
        thread.join(HANGS)
        assert not thread.is_alive()


@pytest.fixture(autouse=True)
def each_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many events a text comes in is the text's, not the machine's; test_costs.py gathers them."""
    thresholds(monkeypatch, seconds_of_gathered_events=0)


@pytest.fixture(scope="session")
def model() -> Any:
    """The small model."""
    return models.small()


@pytest.fixture(scope="session")
def server(model: Any) -> Iterator[Running]:
    """The server, with no keys."""
    yield from running(model, SETTINGS)


@pytest.fixture(scope="session")
def peer() -> Any:
    """XGrammar, with a compiler for bytes."""
    pytest.importorskip("xgrammar")
    found: Any = import_module("xgrammar")
    tokens = [*(bytes([byte]) for byte in range(256)), b"</s>"]
    info = found.TokenizerInfo(tokens, vocab_type=found.VocabType.RAW, stop_token_ids=[256])
    return found, found.GrammarCompiler(info)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The applications that the command serves; each begins and ends at once."""
    found: list[Any] = []

    def run(app: Any, settings: Any, listening: socket.socket) -> None:
        async def begin_and_end() -> None:
            async with app.router.lifespan_context(app):
                assert app.state.models.first.service.engine.is_started

        found.append(app)
        asyncio.run(begin_and_end())
        listening.close()

    monkeypatch.setattr("trellm.serve.server.run", run)
    return found
