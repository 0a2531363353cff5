"""A small HTTP client that costs little, since it shares the processor with the servers that it measures."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What became of a request. first, last: seconds until the first byte of the body, and until all was there"""

    status: int
    body: bytes
    first: float
    last: float

    @property
    def events(self) -> list[Any]:
        """The data of a streamed answer, but for [DONE]."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line.strip() != b"[DONE]"]

    @property
    def tokens(self) -> int:
        """How many tokens were generated."""
        said = json.loads(self.body) if self.body.startswith(b"{") else self.events[-1]
        return int(said["usage"]["completion_tokens"])

    @property
    def text(self) -> str:
        """The text of the first choice."""
        if self.body.startswith(b"{"):
            return str(json.loads(self.body)["choices"][0]["text"])
        return "".join(event["choices"][0]["text"] for event in self.events if event["choices"])


class Connection:
    """One connection that is kept, to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Send a request, and read the whole answer."""
        if self._streams is None or self._streams[0].at_eof():  # servers close what has been idle
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        begin = time.perf_counter()
        writer.write(head.encode() + b"\r\n\r\n" + data)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        status = int(lines[0].split()[1])
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        parts: list[bytes] = []
        first = 0.0
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
                first = first or time.perf_counter() - begin
            await reader.readexactly(2)
        else:
            parts.append(await reader.readexactly(int(headers["content-length"])))
        last = time.perf_counter() - begin
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, b"".join(parts), first or last, last)

    def close(self) -> None:
        """Close it; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
