"""Every option of `Sample` by every API that writes texts: it decides, and what is no value is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ..test_sample_options import LIKELIEST, TRIED
from .conftest import Running

TURN = [{"role": "user", "content": "Tell me of the kettle."}]
# By API the body, the member that has the options, and what leads to the text.
APIS: dict[str, tuple[dict[str, Any], str | None, tuple[Any, ...]]] = {
    "/v1/chat/completions": ({"messages": TURN, "max_tokens": 12}, None, ("choices", 0, "message", "content")),
    "/v1/completions": ({"prompt": "The kettle", "max_tokens": 12}, None, ("choices", 0, "text")),
    "/v1/responses": ({"input": TURN, "max_output_tokens": 12}, None, ("output", -1, "content", 0, "text")),
    "/v1/messages": ({"messages": TURN, "max_tokens": 12}, None, ("content", 0, "text")),
    "/api/chat": ({"messages": TURN, "stream": False}, "options", ("message", "content")),
    "/api/generate": ({"prompt": "The kettle", "stream": False}, "options", ("response",)),
    "/completion": ({"prompt": "The kettle", "n_predict": 12}, None, ("content",)),
    "/generate": ({"text": "The kettle"}, "sampling_params", ("text",)),
}
REFUSED = {"temperature": -1.0, "top_k": -2, "top_p": 0.0, "min_p": 2.0}
BUDGETS: dict[str | None, dict[str, Any]] = {"options": {"num_predict": 12}, "sampling_params": {"max_new_tokens": 12}}


def body_of(path: str, **options: Any) -> dict[str, Any]:
    body, member, _ = APIS[path]
    options = options | BUDGETS.get(member, {})
    return {"model": "small", **body, **(options if member is None else {member: options})}


def text_of(server: Running, path: str, **options: Any) -> str:
    answer = server.post(path, body_of(path, **options))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for step in APIS[path][2]:
        found = found[step]
    return found


def test_every_api_is_tried(server: Running) -> None:
    """Those whose bodies have a temperature, or a member that has one."""
    document = server.http.get("/openapi.json").json()
    schemas = {name: str(each) for name, each in document["components"]["schemas"].items()}

    def named(text: str) -> set[str]:
        return set(re.findall(r"schemas/(\w+)", text))

    def has(body: Any) -> bool:
        own = named(str(body))
        return any("'temperature':" in schemas[each] for each in own.union(*(named(schemas[each]) for each in own)))

    asked = {path: about.get("post", {}).get("requestBody") for path, about in document["paths"].items()}
    found = {path for path, body in asked.items() if has(body)}
    assert found - {"/v1/messages/count_tokens"} == APIS.keys()


@pytest.mark.parametrize("path", APIS)
def test_each_option_decides(server: Running, path: str) -> None:
    likeliest = text_of(server, path, temperature=0)
    assert text_of(server, path, temperature=100.0) != likeliest
    for options in LIKELIEST.values():
        assert text_of(server, path, temperature=100.0, **options) == likeliest, options


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize("path", APIS)
def test_what_is_no_value_is_refused_by_name(server: Running, path: str, name: str) -> None:
    answer = server.post(path, body_of(path, **{name: REFUSED[name]}))
    assert answer.status_code == 400 and name in answer.text, answer.text


def test_what_responses_lack_is_refused_by_name(server: Running) -> None:
    error = server.error("/v1/responses", {"model": "small", "input": "a", "seed": 7})
    assert (error["param"], error["code"]) == ("seed", "unsupported_parameter") and "/v1/chat" in error["message"]
    hint = server.post("/generate", {"text": "a", "temperature": 1.0}).json()["error"]["message"]
    assert "did you mean sampling_params.temperature?" in hint
