"""Answers and requests of megabytes: written in parts and read apart, so that nobody else waits for them."""

import json
import math
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..thresholds import thresholds
from ..watching import in_thread, watched
from .conftest import HANGS, Running, until
from .support import ITEMS, LARGE, LARGE_CHAT, ConstraintFields, bodies, chat, is_large, other, serialize

CHAT = {"model": "small", "messages": [{"role": "user", "content": "Hello."}], "seed": 3}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@settings(max_examples=40)
@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_what_is_written_in_parts_is_the_same_json(value: Any) -> None:
    assert json.loads(b"".join(serialize(value))) == value


def test_long_lists_are_written_some_items_at_a_time() -> None:
    value = {"a": [[0] * 20 for _ in range(ITEMS * 40 + 1)], "b": {}, "c": [], "d": {"e\u2028": list(range(ITEMS * 3))}}
    parts = list(serialize(value))
    assert json.loads(b"".join(parts)) == value
    assert max(map(len, parts)) < ITEMS * 50
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(serialize([math.nan] * 999))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_many_texts_with_their_scores(server: Running, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are those that are told one by one, in order; their tables are made in other threads."""
    makers = watched(monkeypatch, chat, "chat_scores", in_thread)
    body: dict[str, Any] = CHAT | {"n": 16, "max_tokens": 24, "min_tokens": 24}
    scores: dict[str, Any] = {"logprobs": True, "top_logprobs": 20}
    if path == "/v1/completions":
        body, scores = {**body, "prompt": "Hello."}, {"logprobs": 20}
        del body["messages"]
    plain = server.post(path, body).json()
    answer = server.post(path, body | scores)
    assert len(answer.content) == int(answer.headers["content-length"]) > LARGE / 4
    found = answer.json()
    assert found["usage"] | {"prompt_tokens_details": None} == plain["usage"] | {"prompt_tokens_details": None}
    for number, (choice, twin) in enumerate(zip(found["choices"], plain["choices"], strict=True)):
        tables = choice.pop("logprobs")
        assert twin.pop("logprobs") is None and choice == twin and choice["index"] == number
        tokens = tables["content"] if "content" in tables else tables["top_logprobs"]
        assert len(tokens) == 24
    assert all(name.startswith("asyncio") for name in makers[16:])


def test_a_large_answer_comes_in_parts(server: Running) -> None:
    text = "Tea for two. " * 20_000
    answer = server.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert len(answer.content) == int(answer.headers["content-length"]) > LARGE
    found = answer.json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert "".join(found["token_strs"]) == text
    assert found["tokens"][:99] == server.post("/tokenize", {"prompt": text[:999]}).json()["tokens"][:99]


def test_tokens_are_counted_aside(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request after the other, whatever they take: texts, large bodies and long results do not wait behind them."""
    is_free, busiest, running = threading.Event(), 0, 0

    def slow(*_: Any) -> None:
        nonlocal busiest, running
        running += 1
        busiest = max(busiest, running)
        assert is_free.wait(HANGS)
        running -= 1

    watched(monkeypatch, other, "ids_of", slow)
    thresholds(monkeypatch, bodies_read_aside=40)
    with ThreadPoolExecutor(41) as threads:
        url, body = f"{server.url}/tokenize", {"prompt": "tea"}
        several = [threads.submit(httpx.post, url, json=body, timeout=HANGS) for _ in range(41)]
        refused = wait(several, HANGS, FIRST_COMPLETED).done
        large = {"model": "small", "prompt": "a", "max_tokens": 2, "user": "u" * (1 << 17)}
        assert server.post("/v1/completions", large).status_code == 200
        assert sum(each.done() for each in several) == 1
        is_free.set()
        statuses = sorted(each.result().status_code for each in several)
    assert statuses == [200] * 40 + [429] and busiest == 1
    assert int(refused.pop().result().headers["retry-after"]) >= 1


def test_large_chats_hold_up_no_small_ones(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to make tokens of megabytes, with or without tools."""
    has_begun, goes_on = threading.Event(), threading.Event()

    def slow(prompt: Any, number: int, extras: Any, *_: Any, **__: Any) -> None:
        if is_large((prompt, *extras.values()), LARGE_CHAT):
            has_begun.set()
            assert goes_on.wait(HANGS)

    watched(monkeypatch, server.service, "ids", slow)
    # Too long to be written out at once, which nothing holds up
    small = {"model": "small", "messages": [{"role": "user", "content": "Write. " * 300}], "max_tokens": 1}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"enum": [[]] * 10_000}}}
    large = [small | {"messages": [{"role": "user", "content": "a" * 100_000}]}, small | {"tools": [tool]}]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.post, "/v1/chat/completions", body) for body in large * 3]
        assert has_begun.wait(HANGS)
        assert server.post("/v1/chat/completions", small, timeout=HANGS).status_code in (200, 400)
        assert not any(each.done() for each in asked)
        goes_on.set()
        assert {each.result().status_code for each in asked} == {400}


def test_large_bodies_are_read_one_after_the_other(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six at a time left others a seventh of the interpreter."""
    at_work, most = 0, list[int]()
    waiting: Any = server.models.shared.reading._work_queue  # type: ignore[attr-defined]

    def slowly(*_: Any) -> None:
        nonlocal at_work
        at_work += 1
        most.append(at_work)
        until(lambda: len(most) > 1 or waiting.qsize() == 3)  # all have come
        at_work -= 1

    watched(monkeypatch, bodies, "parse", slowly)
    body = {"model": "small", "prompt": "a", "guided_choice": ["a" * 100_000]}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.post("/v1/completions", body), range(4)))
    assert {answer.status_code for answer in answers} == {400}  # in which budget is no room
    assert most == [1] * 4


def test_large_constraints_are_resolved_beside_the_event_loop(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of megabytes is written out as text, and read where it is one."""
    threads = watched(monkeypatch, ConstraintFields, "constraint", in_thread)
    for size in (1, 1 << 17):
        schema = {"enum": ["a" * size]}
        for path, body in (
            ("/constraint", {"json_schema": schema}),
            ("/v1/completions", {"prompt": "a", "guided_json": json.dumps(schema), "max_tokens": 1}),
        ):
            assert server.post(path, {"model": "small", **body}).status_code in (200, 400)
    assert [name.startswith("trellm reading") for name in threads] == [False, False, True, True]


def test_what_is_large() -> None:
    assert not is_large((["a" * 50], {"b": [1, 2]}), 128) and is_large((["a" * 50], {"b": [1, 2]}), 64)
    assert is_large([[]] * 100, 799) and is_large("a" * 100, 99) and is_large({"a" * 100: 1}, 99)
