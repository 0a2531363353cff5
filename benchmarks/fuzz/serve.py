"""An adversary of the server: malformed and malicious requests, each of which must be answered or end, harming none.

    python benchmarks/fuzz/serve.py [--cases 1000] [--seed 0] [--only bodies|bytes|sockets]

A server of the small model in this process, on a loopback port. bodies: valid requests of all endpoints in which some
values are exchanged for others of any kind, fields are added, left out and doubled; bytes: such requests with bytes
changed; sockets: requests that are broken off, slow, wrongly framed, or have strange headers. An answer must be JSON,
an event stream or text with a status that says whose fault it is; a 500 is nobody's. In the end no text may be on its
way, no memory held, and a usual request must be answered as before. Prints how many there were of each status, and
what was wrong; exits with 1 if anything was.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from typing import Any

CHAT = [{"role": "user", "content": "Will it rain in Oslo?"}]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get", "parameters": SCHEMA}}]
CHATS: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS, "tool_choice": "auto", "stop": ["x"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"trellm": {"extract": {"context": "It rains in Oslo."}, "trace": True}},
    {"n": 2, "logprobs": True, "top_logprobs": 2, "stream": True, "stream_options": {"include_usage": True}},
    {"messages": [*CHAT, {"role": "assistant", "content": "Yes."},
                  {"role": "user", "content": [{"type": "text", "text": "No?"}]}]},
]  # fmt: skip
TEXTS: list[dict[str, Any]] = [
    {"regex": "[a-c]{1,9}"},
    {"grammar": 'root ::= "a" [0-9]+'},
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"prompt": [1, 2, 3], "logprobs": 3},
    {"trellm": {"include": ["tea", {"ordered": ["a", "b"]}], "beams": 2}, "temperature": 0},
    {"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "x"},
        {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</a>"}]}}},
]  # fmt: skip
BASES: list[tuple[str, dict[str, Any]]] = [
    *(("/v1/chat/completions", {"model": "small", "messages": CHAT, "max_tokens": 24} | more) for more in CHATS),
    *(("/v1/completions", {"model": "small", "prompt": "Tea ", "max_tokens": 24} | more) for more in TEXTS),
    ("/v1/responses", {"model": "small", "input": "Hello", "max_output_tokens": 24}),
    ("/v1/responses", {"model": "small", "input": [{"role": "user", "content": "Hello"}], "stream": True,
                       "max_output_tokens": 24, "text": {"format": {"type": "json_object"}}}),
    ("/constraint", {"model": "small", "guided_json": SCHEMA}),
    ("/tokenize", {"prompt": "Hello"}),
    ("/tokenize", {"messages": CHAT, "return_token_strs": True}),
]  # fmt: skip
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 63, -(1 << 63), 10**40, 0.5, -0.0, 1e308, 1e-320, 3.0),
    *("", " ", "a", "auto", "small", "\0", "\u2028", "\U0001f468\u200d\U0001f469", "é́", "\ufeff", "a" * 5000, "{", "("),
    *("[a-z]+", "(a*)*b", "\\d{1000}", "(?=a)", 'root ::= root | "a"', "start: start", "..", "%s", "<think>"),
    *("#/$defs/a", [], [[]], [None], {}, {"": {}}, {"type": "object"}, {"$ref": "#"}),
    *({"type": "token"}, {"$ref": "file:///etc/passwd"}),
    *({"type": "function"}, {"not": {}}, [1] * 300, ["a"] * 300, {"enum": []}, {"pattern": "("}, {"role": "user"}),
]  # fmt: skip
FINE = {200, 400, 401, 404, 405, 413, 415, 429, 431, 503}
PATIENCE = 40.0


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a request, but for what is very deep."""
    if len(at) > 8:
        return [at]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, each in inner for place in places(each, (*at, name)))]


def nested(seed: random.Random) -> Any:
    """Something deep."""
    found: Any = seed.choice([1, "a", {}])
    for _ in range(seed.choice([5, 60, 200, 270])):
        found = seed.choice([[found], {"items": found}, {"not": found}])
    return found


def mutant(seed: random.Random) -> tuple[str, dict[str, Any]]:
    """A request with some values exchanged."""
    path, body = copy.deepcopy(seed.choice(BASES))
    path = seed.choice([path] * 9 + [seed.choice(BASES)[0]])
    for _ in range(seed.choice([1, 1, 1, 2, 3, 6])):
        place = seed.choice(places(body)[1:] or [("model",)])
        holder: Any = body
        for step in place[:-1]:
            holder = holder[step]
        kind = seed.randrange(6)
        if kind == 0:
            holder.pop(place[-1])
        elif kind == 1 and isinstance(holder, dict):
            other = seed.choice([*seed.choice(BASES)[1], "temperature", "seed", "logit_bias", "min_tokens", "é"])
            holder[other] = seed.choice(VALUES)
        elif kind == 2:
            holder[place[-1]] = nested(seed)
        elif kind == 3:
            donor = seed.choice(BASES)[1]
            for step in seed.choice(places(donor)):
                donor = donor[step]
            holder[place[-1]] = copy.deepcopy(donor)
        else:
            holder[place[-1]] = copy.deepcopy(seed.choice(VALUES))
        if not body:
            break
    return path, body


def changed(seed: random.Random, data: bytes) -> bytes:
    """The same with some bytes changed."""
    found = bytearray(data)
    for _ in range(seed.choice([1, 1, 2, 5])):
        at = seed.randrange(len(found) + 1)
        kind = seed.randrange(4)
        if kind == 0:
            found[at : at + 1] = bytes([seed.randrange(256)])
        elif kind == 1:
            found[at:at] = seed.choice([b"\\ud800", b"NaN", b"1e999", b'"', b"\xff", b"[" * 50, b"0" * 400, b"\\u0000"])
        elif kind == 2:
            del found[at : at + seed.choice([1, 5, 40])]
        else:
            found[at:at] = found[max(0, at - 20) : at]
    return bytes(found)


class Adversary:
    """What was asked, and what was wrong."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.seed = random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []

    def ask(self, path: str, data: bytes, headers: bytes = b"") -> None:
        """A whole request, whose answer is looked at."""
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n".encode()
        self.send([head + headers + b"Content-Length: %d\r\n\r\n" % len(data) + data], f"{path} {data[:400]!r}")

    def send(self, parts: list[bytes], what: str, pause: float = 0.0) -> None:
        """Parts of a request; the answer to it must be one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            try:
                for part in parts:
                    client.sendall(part)
                    time.sleep(pause)
                answer = b""
                while more := client.recv(1 << 16):
                    answer += more
            except ConnectionError:  # an answer before all was sent, whose sender did not wait
                return
            except TimeoutError:
                self.wrong.append(f"no answer: {what}")
                return
        self.judge(answer, what)

    def judge(self, answer: bytes, what: str) -> None:
        """Whether an answer is one."""
        head, _, body = answer.partition(b"\r\n\r\n")
        try:
            status = int(head.split(b" ", 2)[1])
        except (ValueError, IndexError):
            self.wrong.append(f"no answer but {answer[:80]!r}: {what}")
            return
        self.statuses[status] += 1
        is_events = b"text/event-stream" in head
        if status not in FINE or b"internal_error" in body or b"model_error" in body:
            self.wrong.append(f"{status} {body[:300]!r}: {what}")
        elif is_events and not (b"[DONE]" in body or b'"error"' in body or b"event: response." in body):
            self.wrong.append(f"a stream without an end {body[-200:]!r}: {what}")
        elif not is_events and b"application/json" in head:
            said = json.loads(body)
            if status >= 400 and not {"message", "type", "param", "code"} <= said["error"].keys():
                self.wrong.append(f"no error of OpenAI's shape {body[:200]!r}: {what}")

    def leave(self) -> None:
        """A request whose client goes away at some time."""
        path, body = copy.deepcopy(self.seed.choice(BASES))
        body |= {"stream": self.seed.random() < 0.5} if path.startswith("/v1") else {}
        data = json.dumps(body | ({"max_tokens": 200} if "max_tokens" in body else {})).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        whole = head.encode() + b"\r\n\r\n" + data
        end = self.seed.choice([self.seed.randrange(len(whole)), len(whole), len(whole)])
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            client.sendall(whole[:end])
            time.sleep(self.seed.choice([0, 0, 0.001, 0.01, 0.05]))
            if self.seed.random() < 0.3:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset

    def strange(self) -> None:
        """A request in a frame that it should not have."""
        data = b'{"model": "small", "prompt": "a", "max_tokens": 2}'
        start = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        kind = b"Content-Type: application/json\r\n"
        length = b"Content-Length: %d\r\n" % len(data)
        frames: list[list[bytes]] = [
            [start + kind + b"Content-Length: -1\r\n\r\n" + data],
            [start + kind + b"Content-Length: 99999999999999999999\r\n\r\n" + data[:5]],
            [start + kind + length + length + b"\r\n" + data],
            [start + kind + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n" + data],
            [start + kind + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"],
            [start + b"Content-Type: application/json; charset=utf-16\r\n" + length + b"\r\n" + data],
            [start + kind + length + b"".join(b"X-%d: a\r\n" % i for i in range(3000)) + b"\r\n" + data],
            [start + kind + length + b"X: " + b"a" * 40_000 + b"\r\n\r\n" + data],
            [start + kind + length + b"Authorization: \xff\xfe\r\nCookie: \xe9\r\n\r\n" + data],
            [b"GET /v1/models/%ff%00..%2f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"],
            [b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"],
            [b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"],
            [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"],
            [start + kind + length + b"\r\n" + data + b"GET / HTTP/1.1\r\n"],
            [b"POST /v1/completions HTTP/9.9\r\n\r\n"],
        ]
        parts = self.seed.choice(frames)
        if self.seed.random() < 0.3:  # some bytes at a time
            whole = b"".join(parts)
            parts = [whole[at : at + 4000] for at in range(0, len(whole), 4000)]
        if b"99999" in parts[0] or b"ZZ" in parts[0]:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
                client.sendall(b"".join(parts))
            return
        self.send(parts, repr(parts[0][:200]), 0.002)


def usual(port: int) -> bytes:
    """What a usual request is answered with, but for its id and time."""
    found: list[bytes] = []
    adversary = Adversary(port, 0)
    adversary.judge = lambda answer, what: found.append(answer)  # type: ignore[method-assign]
    body = {"model": "small", "prompt": "Tea ", "temperature": 0, "max_tokens": 8}
    adversary.ask("/v1/completions", json.dumps(body).encode())
    return json.dumps(json.loads(found[0].partition(b"\r\n\r\n")[2])["choices"]).encode()


def main() -> int:
    """Ask, and say what was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("bodies", "bytes", "sockets"))
    options = parser.parse_args()
    from trellm import models
    from trellm.serve import Settings, application
    from trellm.serve.server import Server, listen

    settings = Settings(body_bytes=1 << 20, texts=32, compile_seconds=5)
    app = application(models.small(), settings)
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = Server(app, settings)
    thread = threading.Thread(target=lambda: asyncio.run(server._serve(sockets=[listening])), daemon=True)
    thread.start()
    adversary = Adversary(port, options.seed)
    before = usual(port)
    slowest = 0.0
    for number in range(options.cases):
        kind = options.only or ("bodies", "bytes", "sockets")[number % 3]
        begun = time.perf_counter()
        if kind == "sockets":
            adversary.seed.choice([adversary.leave, adversary.strange])()
        else:
            path, body = mutant(adversary.seed)
            data = json.dumps(body, ensure_ascii=adversary.seed.random() < 0.5).encode()
            adversary.ask(path, changed(adversary.seed, data) if kind == "bytes" else data)
        took = time.perf_counter() - begun
        if took > slowest:
            slowest = took
            print(f"case {number}: {took:.2f} s", file=sys.stderr, flush=True)
    service = app.state.models.first.service
    deadline = time.monotonic() + 30
    while (service.texts or service.engine.is_busy) and time.monotonic() < deadline:
        time.sleep(0.05)
    if service.texts or service.engine.held_bytes:
        adversary.wrong.append(f"{service.texts} texts and {service.engine.held_bytes} bytes are held in the end")
    if usual(port) != before:
        adversary.wrong.append("a usual request is answered otherwise than before")
    server.should_exit = True
    thread.join(60)
    print(f"{options.cases} cases, seed {options.seed}, slowest {slowest:.2f} s")
    print(", ".join(f"{status}: {count}" for status, count in sorted(adversary.statuses.items())))
    print("\n".join(adversary.wrong) or "nothing was wrong")
    return 1 if adversary.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
