"""Several models in one server: loaded when asked for, unloaded for others, within a budget of memory."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trellm import generate, models
from trellm.cli import main
from trellm.errors import OptionError
from trellm.guides import ChoiceGuide
from trellm.serve import ServedModel, Settings, application

from .conftest import HANGS, Running, running, until
from .support import ApiError, make_guides_by

RUN = {"prompt": "ab", "max_tokens": 8, "min_tokens": 8, "temperature": 0}
POOL, BLOCK = 1 << 20, 1 << 13
"""Bytes for keys and values, and more than those of a block."""


def tiny(seed: int) -> Any:
    """A random model of single characters."""
    alphabet = ["</s>", *map(chr, range(33, 127))]
    backend = Tokenizer(BPE({each: number for number, each in enumerate(alphabet)}, []))
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(alphabet), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=0, initializer_range=0.4,
    )  # fmt: skip
    return models.transformers(LlamaForCausalLM(config).eval(), tokenizer)


class Source:
    """Loads a model as often as it is asked to. opened: it waits for that; error: what it raises instead"""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loads = 0
        self.opened = threading.Event()
        self.opened.set()
        self.error: BaseException | None = None
        self.made: list[Any] = []

    def __call__(self) -> Any:
        self.loads += 1
        assert self.opened.wait(HANGS)
        if self.error is not None:
            raise self.error
        made = tiny(self.seed)
        self.made.append(weakref.ref(made))
        return made

    @property
    def alive(self) -> int:
        return sum(each() is not None for each in self.made)


@contextmanager
def serving(
    sources: dict[str, Any], budget: int | None = None, memory: int | None = POOL, **settings: Any
) -> Iterator[Running]:
    (name, first), *others = sources.items()
    chosen = Settings(name=name, compile_seconds=300, **settings)
    more = [ServedModel(name=each, model=source) for each, source in others]
    yield from running(first, chosen, others=more, memory=memory, memory_budget=budget)


@pytest.fixture(scope="module")
def size() -> int:
    """Bytes of a model, with keys and values."""
    with serving({"a": Source(1)}) as server:
        return status(server, "a")["memory_bytes"]


def status(server: Running, name: str) -> dict[str, Any]:
    return server.http.get(f"/v1/models/{name}").json()["status"]


def states(server: Running) -> str:
    """The first letters of all models that are in memory."""
    listed = server.http.get("/v1/models").json()["data"]
    return "".join(each["id"] for each in listed if each["status"]["value"] == "loaded")


def text(server: Running, name: str) -> str:
    answer = server.post("/v1/completions", {**RUN, "model": name})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == name
    return answer.json()["choices"][0]["text"]


def alone(seed: int) -> str:
    return generate.text(tiny(seed)).run("ab", max_tokens=8, min_tokens=8).text


def test_models_are_loaded_when_they_are_asked_for() -> None:
    sources = {"a": Source(1), "b": Source(2), "c": Source(3)}
    with serving(sources) as server:
        assert [source.loads for source in sources.values()] == [1, 0, 0]
        assert states(server) == "a" and status(server, "c") == {"value": "unloaded"}
        assert "max_model_len" not in server.http.get("/v1/models/b").json()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: text(server, "b"), range(4)))
        assert found == [alone(2)] * 4 and text(server, "a") == alone(1) != alone(2)
        assert [source.loads for source in sources.values()] == [1, 1, 0] and states(server) == "ab"
        assert server.http.get("/v1/models/b").json()["max_model_len"] == 256
        error = server.error("/v1/completions", {**RUN, "model": "d"}, 404)
        assert "the server has 'a', 'b', 'c'" in error["message"]
        counted = server.http.get("/metrics").text
        assert 'trellm_output_tokens_total{model_name="b"} 32.0' in counted
        assert 'trellm_model_loaded{model_name="c"} 0.0' in counted
        assert 'trellm_model_load_seconds_count{model_name="b"} 1.0' in counted


def test_requests_that_name_no_model_go_to_the_first() -> None:
    with serving({"a": Source(1), "b": Source(2)}) as server:
        assert server.post("/tokenize", {"prompt": "ab"}).json()["count"] == 2
        assert server.post("/completion", {"prompt": "ab", "n_predict": 1}).json()["model"] == "a"
        assert states(server) == "a"
        assert server.http.get("/props?model=b").json()["model_alias"] == "b" and states(server) == "ab"


def test_the_longest_idle_makes_room(size: int) -> None:
    sources = {"a": Source(1), "b": Source(2), "c": Source(3)}
    with serving(sources, 2 * size + size // 2) as server:
        text(server, "b")
        text(server, "a")
        assert text(server, "c") == alone(3) and states(server) == "ac"
        until(lambda: sources["b"].alive == 0)
        assert text(server, "b") == alone(2) and states(server) == "bc"
        until(lambda: sources["a"].alive == 0)
        assert text(server, "a") == alone(1), "the first comes back as others do"
        assert [source.loads for source in sources.values()] == [2, 2, 1]


def test_memory_for_keys_and_values_is_half_of_the_budget(size: int) -> None:
    with serving({"a": Source(1), "b": Source(2)}, 8 * POOL, None) as server:
        pool = status(server, "a")["memory_bytes"] - (size - POOL)
        assert 2 * POOL - BLOCK < pool <= 2 * POOL


def test_a_model_that_runs_is_not_unloaded(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who needs its memory waits; whoever asks for it meanwhile comes after that."""
    goes_on = threading.Event()
    make_guides_by(
        monkeypatch, ChoiceGuide=lambda *given, **options: goes_on.wait(HANGS) and ChoiceGuide(*given, **options)
    )
    sources = {"a": Source(1), "b": Source(2)}
    with serving(sources, size + size // 2) as server, ThreadPoolExecutor(3) as pool:
        held = pool.submit(server.post, "/v1/completions", {**RUN, "model": "a", "guided_choice": ["xyz"]})
        until(lambda: bool(server.service.compiler._compilations))
        other = pool.submit(text, server, "b")
        until(lambda: server.models.first.is_leaving)
        late = pool.submit(text, server, "a")
        until(lambda: len(server.models.first.waiting) == 1)
        assert states(server) == "a" and sources["b"].loads == 0
        goes_on.set()
        assert held.result().json()["choices"][0]["text"] == "xyz"
        assert (other.result(), late.result()) == (alone(2), alone(1))
        assert (sources["a"].loads, sources["b"].loads) == (2, 1)


def test_nobody_waits_for_a_model_that_is_loaded_for_others() -> None:
    sources = {"a": Source(1), "b": Source(2)}
    sources["b"].opened.clear()
    with serving(sources, loading=1) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(text, server, "b")
        until(lambda: sources["b"].loads == 1)
        assert status(server, "b") == {"value": "loading"}
        assert text(server, "a") == alone(1), "which runs meanwhile"
        error = server.error("/v1/completions", {**RUN, "model": "b"}, 429)
        assert "1 requests wait" in error["message"]
        sources["b"].opened.set()
        assert asked.result() == alone(2)


def test_what_nobody_waits_for_any_more_is_not_loaded() -> None:
    sources = {"a": Source(1), "b": Source(2), "c": Source(3)}
    sources["b"].opened.clear()
    with serving(sources) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(text, server, "b")
        until(lambda: sources["b"].loads == 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json={**RUN, "model": "c"}, timeout=0.2)
        until(lambda: not server.models.named("c").waiting)
        sources["b"].opened.set()
        assert asked.result() == alone(2)
        until(lambda: server.models.named("c").loading is None)
        assert sources["c"].loads == 0


def test_a_model_that_cannot_be_loaded_fails_alone() -> None:
    sources = {"a": Source(1), "b": Source(2)}
    with serving(sources) as server:
        sources["b"].error = OSError("no such disk")
        for _ in range(2):
            answer = server.post("/v1/completions", {**RUN, "model": "b"})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "model_not_loaded")
            assert answer.headers["retry-after"] == "30"
            assert "the model 'b' could not be loaded: OSError: no such disk" in error["message"]
        assert sources["b"].loads == 1, "it is not tried each time"
        assert status(server, "b") == {"value": "unloaded", "failed": True} and text(server, "a") == alone(1)


def test_a_model_that_could_not_be_loaded_is_tried_again() -> None:
    sources = {"a": Source(1), "b": Source(2)}
    with serving(sources, retry_seconds=1e-9) as server:
        for strange in (StopIteration("no more"), SystemExit(3)):
            sources["b"].error = strange
            assert repr(strange) in server.error("/v1/completions", {**RUN, "model": "b"}, 503)["message"]
        sources["b"].error = None
        assert text(server, "b") == alone(2) and status(server, "b")["value"] == "loaded"


def test_a_model_for_which_there_is_never_room(size: int) -> None:
    sources = {"a": tiny(1), "b": Source(2)}
    with serving(sources, size + size // 2) as server:
        for _ in range(2):
            error = server.error("/v1/completions", {**RUN, "model": "b"}, 507)
            assert error["code"] == "insufficient_memory" and "of models that are never unloaded" in error["message"]
        assert text(server, "a") == alone(1) and sources["b"].loads == 1, "its size is known now"
    until(lambda: gc.collect() >= 0 and sources["b"].alive == 0)
    app = application(tiny(1), Settings(name="a"), memory=POOL, memory_budget=size // 2)

    async def begin() -> None:
        async with app.router.lifespan_context(app):
            pass

    with pytest.raises(OptionError, match="larger --memory-budget"):
        asyncio.run(begin())


def test_a_model_that_is_loaded_when_the_server_ends_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    sources = {"a": Source(1), "b": Source(2)}
    sources["b"].opened.clear()
    app = application(sources["a"], Settings(name="a"), others=[ServedModel(name="b", model=sources["b"])])

    async def end() -> None:
        async with app.router.lifespan_context(app):
            hosted = app.state.models.find("b")
            asked = asyncio.create_task(app.state.models.load(hosted))
            while not sources["b"].loads:
                await asyncio.sleep(0.01)
            loading = hosted.loading
            app.state.models.cut()
            sources["b"].opened.set()
        with pytest.raises(ApiError, match="shut down"):
            await asked
        await loading

    asyncio.run(end())
    assert not caplog.records


def test_ollama_keeps_models_for_a_time() -> None:
    sources = {"a": Source(1), "b": Source(2)}
    with serving(sources) as server:

        def asked(name: str, **body: Any) -> Any:
            answer = server.post("/api/generate", {"model": f"{name}:latest", "stream": False, **body})
            assert answer.status_code == 200, answer.text
            return answer.json()

        def listed() -> dict[str, str]:
            return {each["name"]: each["expires_at"] for each in server.http.get("/api/ps").json()["models"]}

        assert asked("b", keep_alive=0)["done_reason"] == "unload" and sources["b"].loads == 0
        assert asked("b")["done_reason"] == "load"
        assert listed() == {"a:latest": "9999-01-01T00:00:00Z", "b:latest": "9999-01-01T00:00:00Z"}
        assert asked("b", prompt="ab", keep_alive="1h30m", options={"num_predict": 2})["done"]
        assert listed()["b:latest"] < "9999"
        assert asked("b", keep_alive=-1)["done_reason"] == "load" and listed()["b:latest"] > "9999"
        assert asked("b", keep_alive=f"{'9' * 400}h")["done_reason"] == "load" and listed()["b:latest"] > "9999"
        assert asked("b", prompt="ab", keep_alive="10ms", options={"num_predict": 2})["done"]
        until(lambda: states(server) == "a")
        assert asked("a", keep_alive="0")["done_reason"] == "unload"
        until(lambda: states(server) == "" and not sources["a"].alive)
        assert len(server.http.get("/api/tags").json()["models"]) == 2 and listed() == {}
        assert text(server, "a") == alone(1) and states(server) == "a"
        assert asked("a", keep_alive="1.5\u03bcs")["done_reason"] == "load"
        for wrong in ("soon", "-1", "\u0665m", "5 m"):
            answer = server.post("/api/generate", {"model": "a", "prompt": "a", "keep_alive": wrong})
            assert answer.status_code == 400 and 'such as "5m"' in answer.json()["error"]


def test_a_conversation_goes_on_with_another_model() -> None:
    with serving({"a": Source(1), "b": Source(2)}) as server:
        body = {"input": "ab", "max_output_tokens": 4, "temperature": 0}
        first = server.post("/v1/responses", {**body, "model": "a"}).json()
        second = server.post("/v1/responses", {**body, "model": "b", "previous_response_id": first["id"]}).json()
        assert (first["model"], second["model"]) == ("a", "b")
        said = first["output"][0]["content"][0]["text"]
        whole = [
            {"role": "user", "content": "ab"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "ab"},
        ]
        again = server.post("/v1/responses", {**body, "model": "b", "input": whole}).json()
        assert again["output"][0]["content"][0]["text"] == second["output"][0]["content"][0]["text"]


def test_names_are_given_once() -> None:
    with pytest.raises(OptionError, match="'a' is given twice"):
        application(tiny(1), Settings(name="a"), others=[ServedModel(name="a", model=Source(2))])
    with pytest.raises(OptionError, match="a model, or a function"):
        ServedModel(name="a", model=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="by which clients request"):
        ServedModel(name="", model=Source(1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["small", "small"], "'small' is given twice"),
        (["--memory-budget", "1MiB"], "trellm: the model 'small' takes 13.7 MiB"),
        (["=small"], "expected MODEL or NAME=MODEL"),
        (["a=small", "--name", "b"], "both name the first model"),
        (["small", "b=small", "--ray"], "--ray serves one model"),
        (["--memory-budget", "1GiB", "--ray"], "--ray serves one model"),
        (["small", "b=org/model", "--lora-modules", "sql=x"], "JSON with the adapter's model"),
        (["small", "b=org/model", "--lora-modules", '{"name": "sql"}'], "the strings name, path and base_model_name"),
        (
            ["small", "b=org/model", "--lora-modules", '{"name": "sql", "path": "x", "base_model_name": "c"}'],
            "there is no model 'c'",
        ),
    ],
)
def test_mistakes_of_the_command(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_command(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    lora = '{"name": "sql", "path": "adapters/sql", "base_model_name": "b"}'
    options = ["--memory-budget", "3GiB", "--alias", "gpt", "--lora-modules", lora, "--port", "0"]
    assert main(["serve", "small", "b=org/model", *options]) == 0
    assert "small, b at http://127.0.0.1:" in capsys.readouterr().err
    several = served[0].state.models.models
    assert [each.names for each in several] == [("small", "gpt"), ("b", "sql")]
