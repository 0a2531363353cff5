"""Replicas behind doors, without Ray: where requests go, what comes through, and what becomes of lost replicas."""

import asyncio
import json
import logging
import os
import re
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from starlette.requests import Request
from trellm import generate, models
from trellm.errors import OptionError
from trellm.serve import Settings
from trellm.serve import ray as public

from .conftest import turned
from .support import (
    MIN_LOAD_BOUND,
    PREFIX,
    Replica,
    ReplicaRequest,
    ResponseStart,
    pack_model,
    prefix_of,
    ranked,
    router,
    unpack_model,
)

TEXT = "the cat sat on the mat, and the dog sat on the cat. " * 3
SETTINGS = Settings(name="zip", body_bytes=2000, compile_seconds=300)


class LostError(Exception):
    pass


class FullError(Exception):
    pass


class Counter:
    """What Ray counts with."""

    counts: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        Counter.counts[name] = 0

    def inc(self) -> None:
        Counter.counts[self.name] += 1


class Answers:
    """What a handle gives for a request: pieces as they come, which can be given up."""

    def __init__(self, pieces: AsyncIterator[ResponseStart | bytes]) -> None:
        self.pieces = pieces
        self.is_cancelled = False

    def __aiter__(self) -> AsyncIterator[ResponseStart | bytes]:
        return self.pieces

    def cancel(self) -> None:
        self.is_cancelled = True


class Handle:
    """A handle of replicas, whose answer to the first requests some function makes of the real one.

    asked: the keys of all requests
    """

    def __init__(self, replica: Replica, ways: list[Callable[[AsyncIterator[Any]], AsyncIterator[Any]]]) -> None:
        self.replica = replica
        self.ways = list(ways)
        self.asked: list[str] = []
        self.given: list[Answers] = []
        self.answer = self

    def options(self, *, stream: bool) -> "Handle":
        assert stream
        return self

    def remote(self, ask: ReplicaRequest, key: str) -> Answers:
        self.asked.append(key)
        real = self.replica.answer(ask, key)
        self.given.append(Answers(self.ways.pop(0)(real) if self.ways else real))
        return self.given[-1]


async def dead(pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    raise LostError("the actor is dead")
    yield pieces


async def after_a_start(pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield await anext(pieces)
    raise LostError("the actor died")


async def after_an_event(pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield await anext(pieces)
    yield await anext(pieces)
    raise LostError("the actor died")


async def full(pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    raise FullError
    yield pieces


def made_there() -> Any:
    return models.ziplm(TEXT)


@pytest.fixture(scope="module")
def model() -> Any:
    return models.ziplm(TEXT)


def bring(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    """Let modules of Ray be there, or be absent where they are None."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {
        "ray.exceptions": types.SimpleNamespace(RayActorError=LostError),
        "ray.serve.exceptions": types.SimpleNamespace(BackPressureError=FullError),
        "ray.serve.metrics": types.SimpleNamespace(Counter=Counter),
    }
    bring(monkeypatch, fakes)


def asked(model: Any, body: Any, ways: Any = (), *, path: str = "/v1/completions", tries: int = 3,
          leave_after: int | None = None, settings: Settings = SETTINGS,
          ) -> tuple[int, dict[str, str], bytes, Handle]:  # fmt: skip
    """The status, headers and body that a door answers a request with, in an event loop of its own."""

    async def run() -> tuple[int, dict[str, str], bytes, Handle]:
        replica = Replica(model, SETTINGS, None)
        handle = Handle(replica, ways)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "http",
            "server": ("localhost", 80), "client": ["192.0.2.1", 4711],
            "headers": [(b"content-type", b"application/json"), (b"connection", b"keep-alive")],
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)
            if leave_after is not None and len(sent) > leave_after:
                raise asyncio.CancelledError

        answer = await router.Router(handle, settings, tries)(Request(scope, receive))
        try:
            await answer(scope, receive, send)
        except asyncio.CancelledError:
            assert leave_after is not None
        await turned(lambda: not replica._tasks)  # nothing goes on for nobody
        await replica.check_health()
        await replica._lifespan.__aexit__(None, None, None) if replica._lifespan else None
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:]), handle

    return asyncio.run(run())


class Application(types.SimpleNamespace):
    """What is deployed."""

    __hash__ = object.__hash__


class Ray:
    """What Ray has to begin with, where no cluster is. begun: what it was begun with"""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.constants = types.SimpleNamespace(ENABLE_RAY_CLUSTER=True)
        self.shutdown = self.begun.clear
        self.serve = types.SimpleNamespace(
            deployment=lambda kind: self.serve, options=lambda **given: self.serve, bind=lambda *given: Application(),
            start=lambda **given: None, run=lambda *given, **more: None,
        )  # fmt: skip

    @property
    def modules(self) -> dict[str, Any]:
        counted = types.SimpleNamespace(get_num_cpus=lambda: 2)
        return {
            "ray": self,
            "ray.serve": self.serve,
            "ray._private.utils": counted,
            "ray._private.ray_constants": self.constants,
        }

    def is_initialized(self) -> bool:
        return False

    def init(self, *, address: str, **given: Any) -> None:
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance.")
        self.begun.append(given)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.begun[0]["num_cpus"]}


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    bring(monkeypatch, made.modules)
    monkeypatch.setenv(public.ON_LOOPBACK, "1")
    return made


@pytest.mark.parametrize("options", [{"replicas": 2}, {"replicas": (2, 9)}, {"replicas": 5, "cpus": 0.5}, {"cpus": 0}])
def test_ray_is_begun_for_this_machine_alone_with_room_for_a_door(begin: Ray, options: Any) -> None:
    assert public.start(public.deployment(**options))
    assert begin.begun[0]["num_cpus"] == (3 if options != {"cpus": 0} else 2)
    assert begin.begun[0]["include_dashboard"] is False and begin.constants.ENABLE_RAY_CLUSTER is False
    assert os.environ[public.ON_LOOPBACK] == "0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replicas": 3}, "1 CPUs for each of 3 replicas and 0.5 for each of 1 routers are 3.5, but Ray has 3"),
        ({"replicas": 2, "cpus": 8}, "8 CPUs for each of 2 replicas"),
        ({"gpus": 1}, "1 GPUs for each of 1 replicas are 1, but Ray has 0"),
    ],
)
def test_what_this_machine_has_too_little_of_is_said_and_nothing_waits_for_it(
    begin: Ray, options: Any, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        public.start(public.deployment(**options))
    assert not begin.begun


PLAIN: dict[str, Any] = {"model": "zip", "prompt": "the cat ", "max_tokens": 5, "temperature": 0}
STREAM = {**PLAIN, "stream": True}


def test_an_answer_comes_through(model: Any) -> None:
    status, headers, body, handle = asked(model, PLAIN)
    said = json.loads(body)
    assert status == 200 and len(said["choices"][0]["text"]) == 5 and "x-trellm-tries" not in headers
    assert int(headers["content-length"]) == len(body) and handle.asked == ['["the cat "]']
    status, headers, body, handle = asked(model, STREAM)
    events = [json.loads(line[6:]) for line in body.decode().split("\n\n") if line.startswith("data: {")]
    assert headers["content-type"].startswith("text/event-stream") and body.endswith(b"data: [DONE]\n\n")
    assert "".join(each["choices"][0]["text"] for each in events if each["choices"]) == said["choices"][0]["text"]


def test_errors_of_the_server_come_through(model: Any) -> None:
    status, _, body, _ = asked(model, {**PLAIN, "max_tokens": -1})
    assert status == 400 and json.loads(body)["error"]["param"] == "max_tokens"
    status, _, body, handle = asked(model, b"[" * 3000)
    assert status == 413 and json.loads(body)["error"]["code"] == "request_too_large" and handle.asked == []


def written(body: bytes) -> tuple[str, str]:
    """The text and the reason of its end, whole or in events: how many there are of these is a matter of time."""
    told = [line.removeprefix("data: ") for line in body.decode().split("\n\n")]
    choices = [each for line in told if line.startswith("{") for each in json.loads(line)["choices"]]
    return "".join(each["text"] for each in choices), choices[-1]["finish_reason"]


@pytest.mark.parametrize("way", [dead, after_a_start])
@pytest.mark.parametrize("body", [PLAIN, STREAM], ids=["whole", "stream"])
def test_what_was_not_answered_is_given_to_another(model: Any, way: Any, body: Any) -> None:
    expected = asked(model, body)
    status, headers, found, handle = asked(model, body, [way, way])
    assert status == 200 and headers["x-trellm-tries"] == "3" and len(handle.asked) == 3
    assert Counter.counts == {"trellm_requests_given_again": 2, "trellm_streams_lost": 0}
    assert written(found) == written(expected[2]), "it is the answer that it would have been"


def test_a_whole_answer_is_not_begun_before_its_end(model: Any) -> None:
    status, _, body, _ = asked(model, PLAIN, [after_an_event])
    assert status == 200 and body.count(b'"choices"') == 1


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
def test_a_stream_that_was_begun_says_that_it_broke(model: Any, path: str) -> None:
    async def of_a_chat(pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """A chat's first event, since the model has no template of chats."""
        yield ResponseStart(200, ((b"content-type", b"text/event-stream; charset=utf-8"),))
        yield b"data: {}\n\n"
        raise LostError("the actor died")

    status, _, found, handle = asked(model, STREAM, [after_an_event if "comp" in path else of_a_chat], path=path)
    last = found.decode().rstrip("\n").rsplit("\n\n", 1)[1]
    assert status == 200 and '"code":"replica_lost"' in last and len(handle.asked) == 1
    assert last.startswith("event: error\n" if path == "/v1/responses" else 'data: {"error":')
    assert Counter.counts["trellm_streams_lost"] == 1


def test_in_the_end_a_request_is_given_up(model: Any) -> None:
    status, headers, body, handle = asked(model, PLAIN, [dead] * 2, tries=2)
    assert status == 503 and headers["retry-after"] == "1" and len(handle.asked) == 2
    assert json.loads(body)["error"]["code"] == "replica_lost"
    status, headers, body, handle = asked(model, PLAIN, [full])
    assert status == 429 and headers["retry-after"] and len(handle.asked) == 1


@pytest.fixture
def settings_that_log() -> Iterator[Settings]:
    access = logging.getLogger("trellm.serve.access")
    yield replace(SETTINGS, access_log=True)
    access.handlers.clear()
    access.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("body", "ways", "status"),
    [(PLAIN, [], 200), (STREAM, [], 200), (PLAIN, [full], 429), (PLAIN, [dead], 503), (b"[" * 3000, [], 413)],
    ids=["whole", "stream", "full", "lost", "large"],
)
def test_a_door_writes_a_line_about_each_request(
    model: Any, settings_that_log: Settings, body: Any, ways: Any, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once: replicas, which do not know who asked, write none."""
    assert asked(model, body, ways, tries=1, settings=settings_that_log)[0] == status
    lines = [line for line in capsys.readouterr().err.splitlines() if "POST" in line]
    assert [re.sub(r"^\S+ \S+ |[0-9.]+ ms$", "", line) for line in lines if "192.0.2.1" in line] == [
        f'192.0.2.1 "POST /v1/completions" {status} '
    ]


def test_replicas_leave_the_lines_to_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, {"ray.serve": types.SimpleNamespace(deployment=Deployed)})
    replica, settings, _ = public.deployment(settings=Settings(access_log=True)).arguments
    assert settings.access_log and not replica.arguments[1].access_log


def test_a_client_that_goes_away_frees_its_rows(model: Any) -> None:
    *_, handle = asked(model, {**STREAM, "max_tokens": 400}, leave_after=1)
    assert handle.given[0].is_cancelled


def test_chats_go_where_they_began() -> None:
    def key(*messages: tuple[str, str], **more: Any) -> str:
        return prefix_of(json.dumps({"messages": [{"role": r, "content": c} for r, c in messages], **more}).encode())

    first = key(("system", "be brief"), ("user", "hello"))
    assert first == key(("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "and now?"))
    assert first != key(("system", "be brief"), ("user", "bye")) != key(("user", "bye"), tools=[{"type": "function"}])
    long = ("system", "x" * 2 * PREFIX)
    assert key(long, ("user", "hello")) == key(long, ("user", "bye"))
    assert prefix_of(b'{"prompt": "abc", "max_tokens": 3}') == prefix_of(b'{"max_tokens": 4, "prompt": "abc"}') != ""
    for strange in (b"", b"[1", b"3", b"\xff", b'{"prompt": null}', b'{"messages": [3, "a"]}', b"[" * 100_000):
        assert isinstance(prefix_of(strange), str)


def test_keys_keep_their_replica_when_others_come_and_go() -> None:
    names = [f"replica-{number}" for number in range(8)]
    idle = dict.fromkeys(names, 0)
    keys = [f"key {number}" for number in range(400)]
    homes = {key: ranked(key, idle)[0] for key in keys}
    counts = [list(homes.values()).count(name) for name in names]
    assert min(counts) > 25 and sum(counts) == 400, "each has its share, about 50"
    less = {name: 0 for name in names if name != "replica-3"}
    assert all(ranked(key, less)[0] == home for key, home in homes.items() if home != "replica-3")
    assert {ranked(key, less)[0] for key, home in homes.items() if home == "replica-3"} >= set(list(less)[:3])
    assert sorted(ranked("key", idle)) == names


def test_a_replica_with_more_than_its_share_comes_later() -> None:
    home = ranked("key", dict.fromkeys("abcd", 0))[0]
    second = ranked("key", dict.fromkeys("abcd", 0))[1]
    few = {**dict.fromkeys("abcd", 0), home: MIN_LOAD_BOUND - 1}
    assert ranked("key", few)[0] == home, "a few requests cost a batch nothing"
    many = {**dict.fromkeys("abcd", 10), home: 20}
    assert ranked("key", many)[0] == second and ranked("key", many)[-1] == home
    assert ranked("key", dict.fromkeys("abcd", 50))[0] == home, "all have the same to do"


def test_models_are_said_here_and_loaded_there(model: Any) -> None:
    assert unpack_model(pack_model(model)) is model
    assert unpack_model(pack_model(made_there)).vocabulary.tokens == model.vocabulary.tokens
    assert pack_model("Qwen/Qwen3-8B", dtype="bfloat16").arguments["dtype"] == "bfloat16"
    assert pack_model("Qwen/Qwen3-8B", weights="q8").arguments["weights"] == "q8"
    assert pack_model("Qwen/Qwen3-8B", kv_cache_dtype="float16").arguments["kv_cache_dtype"] == "float16"
    assert pack_model(None).loader is models.small
    with pytest.raises(OptionError, match="weights= need a model that is given by its name"):
        pack_model(None, weights="q8")
    for wrong, said in ((3, "a name or folder"), (model, "given by its name")):
        with pytest.raises(OptionError, match=said):
            pack_model(wrong, device=None if wrong == 3 else "cpu")
    with pytest.raises(OptionError, match="must return a trellm model, not 3"):
        unpack_model(lambda: 3)


def test_what_is_wrong_is_said_before_ray_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, {"ray.serve": None})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"replicas": 0}, "replicas"), ({"replicas": (3, 2)}, "least"), ({"replicas": (1, 2, 3)}, "least, most"),
        ({"in_flight": 0}, "in_flight"), ({"gpus": -1}, "gpus"), ({"tries": 0}, "tries"), ({"queued": 0}, "queued"),
        ({"model": 3}, "model=3"),
    ]  # fmt: skip
    for options, said in cases:
        with pytest.raises(OptionError, match=said):
            public.deployment(**options)
    for arguments, said in (({"replica": 2}, "replica"), ({"settings": {"nam": "x"}}, "nam")):
        with pytest.raises(OptionError, match=rf"arguments of trellm.serve.ray:build.*{said}"):
            public.build(arguments)


class Deployed:
    """What Ray Serve makes of a class: remembers what it was told."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def options(self, **given: Any) -> "Deployed":
        self.given = given
        return self

    def bind(self, *arguments: Any) -> "Deployed":
        self.arguments = arguments
        return self


def test_the_rayservice_of_the_page_is_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    yaml: Any = pytest.importorskip("yaml")
    page = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    service = yaml.safe_load(block)
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    assert getattr(import_module(module), name) is public.build
    bring(monkeypatch, {"ray.serve": types.SimpleNamespace(deployment=Deployed)})
    door = public.build(application["args"])
    assert door.kind is router.Router and door.given["num_replicas"] == 2
    replica, settings, tries = door.arguments
    assert replica.kind is Replica and replica.given["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 1}
    scale = replica.given["autoscaling_config"]
    assert (scale["min_replicas"], scale["max_replicas"], scale["target_ongoing_requests"]) == (1, 8, 32)
    assert settings == Settings(name="qwen", texts=4096, response_bytes=0) == replica.arguments[1] and tries == 3
    assert replica.arguments[0] == pack_model("Qwen/Qwen3-8B", device="cuda", dtype="bfloat16")
    assert replica.given["request_router_config"] == {"request_router_class": public.ROUTER}
    assert public.ROUTER.rpartition(".")[0] == router.__name__ and hasattr(router, "__getattr__")
    assert public.build({"replicas": 2}).arguments[0].given["num_replicas"] == 2


def test_without_ray_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, {"ray.serve": None})
    with pytest.raises(OptionError, match=r"^Ray is absent: pip install 'trellm\[ray\]'"):
        public.deployment()


def test_rows_get_columns(model: Any) -> None:
    made = public.Generate(generate.extract(model, TEXT, max_chars=7), max_tokens=9)
    prompts = np.array(["a", [1, 2], np.array([1, 2])], object)
    found = made({"prompt": prompts, "id": np.arange(3)})
    assert list(found) == ["prompt", "id", "text", "value", "finish_reason", "tokens", "error"]
    assert [json.loads(value)["text"] for value in found["value"]] == list(found["text"])
    assert found["text"][1] == found["text"][2] and found["tokens"].dtype == int
    assert set(found["finish_reason"]) == {"complete"} and set(found["error"]) == {None}


def test_a_row_that_cannot_be_used_is_an_error_of_its_own(model: Any) -> None:
    def refuse(text: str) -> None:
        raise ValueError("no cats")

    prompts = {"prompt": np.array(["the ", "\ud800", "a dog ", "é"], object)}
    guide = generate.choice(model, ["cat", "cow"]).guide
    found = public.Generate(lambda: generate.Generator(model, guide, len))(prompts)
    assert found["finish_reason"].tolist() == ["complete", "error", "complete", "error"]
    assert found["value"].tolist() == ["3", None, "3", None] and found["tokens"].tolist() == [3, 0, 3, 0]
    assert [error is None for error in found["error"]] == [True, False, True, False]
    assert "no token of the vocabulary spells" in found["error"][3]
    found = public.Generate(lambda: generate.Generator(model, guide, refuse))(prompts)
    assert found["error"][0] == "ValueError: no cats" and found["text"][0] in ("cat", "cow")
    assert found["value"].tolist() == [None] * 4


def test_wrong_columns_and_options(model: Any) -> None:
    made = public.Generate(generate.text(model), "question")
    for batch, said in (({"prompt": []}, "no column of this name"), ({"question": [], "text": []}, "'text'")):
        with pytest.raises(OptionError, match=said):
            made(batch)
    with pytest.raises(OptionError, match="rename it"):
        public.Generate(generate.text(model), "text")
    with pytest.raises(OptionError, match=r"generator=3"):
        public.Generate(lambda: 3)  # type: ignore[arg-type,return-value]
