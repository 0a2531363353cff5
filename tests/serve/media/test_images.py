"""Images in requests of every API: what reaches the model, what is refused, and what is counted."""

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import PIL.Image
import pytest
from starlette.testclient import TestClient
from trellm import Image, generate, models
from trellm.serve import MediaFetcher, Settings, application

from ..conftest import SETTINGS, Running, running, until
from .conftest import nearby, seeing, serving

needs_engine = pytest.mark.skipif(
    find_spec("trellm.engine.models.media") is None, reason="the engine has no image-text models"
)

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
OLLAMA, GENERATE = "/api/chat", "/api/generate"
RNG = np.random.default_rng(3)


def file_of(width: int, height: int, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(RNG.integers(0, 256, (height, width, 3), np.uint8)).save(file, form)
    return file.getvalue()


FIRST, SECOND = file_of(7, 5), file_of(6, 9, "JPEG")


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url_of(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{text_of(data)}"


def told(model: Any, messages: list[dict[str, Any]]) -> str:
    """What the model answers in Python."""
    return generate.text(model)(messages, max_tokens=TOKENS)


def answered(server: Running, path: str, body: dict[str, Any]) -> Any:
    answer = server.post(path, {"model": "small", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


TOKENS = 12
PARTS: list[Any] = ["What is ", FIRST, " beside ", SECOND]


def python_parts(parts: list[Any]) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": each} if isinstance(each, str) else {"type": "image", "image": Image.of(each)}
        for each in parts
    ]


def chat_parts(parts: list[Any], *, short: bool = False) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": each}
        if isinstance(each, str)
        else {"type": "image_url", "image_url": url_of(each) if short else {"url": url_of(each), "detail": "low"}}
        for each in parts
    ]


def blocks(parts: list[Any]) -> list[dict[str, Any]]:
    source = {"type": "base64", "media_type": "image/png"}
    return [
        {"type": "text", "text": each}
        if isinstance(each, str)
        else {"type": "image", "source": source | {"data": text_of(each)}, "cache_control": {"type": "ephemeral"}}
        for each in parts
    ]


def inputs(parts: list[Any]) -> list[dict[str, Any]]:
    return [
        {"type": "input_text", "text": each}
        if isinstance(each, str)
        else {"type": "input_image", "image_url": url_of(each), "detail": "auto"}
        for each in parts
    ]


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_every_api_reads_images(seer: Running) -> None:
    """They stand where the request has them, between its texts; Ollama's stand before the text."""
    wanted = told(seer.service.model, user(python_parts(PARTS)))
    assert wanted != told(seer.service.model, user(python_parts([*PARTS[:3], FIRST])))
    for short in (False, True):
        chat = answered(seer, CHAT, {"messages": user(chat_parts(PARTS, short=short)), "max_tokens": TOKENS})
        assert chat["choices"][0]["message"]["content"] == wanted
    said = answered(seer, MESSAGES, {"messages": user(blocks(PARTS)), "max_tokens": TOKENS})
    assert said["content"][0]["text"] == wanted
    response = answered(seer, RESPONSES, {"input": user(inputs(PARTS)), "max_output_tokens": TOKENS})
    assert response["output"][0]["content"][0]["text"] == wanted

    wanted = told(seer.service.model, user(python_parts([FIRST, SECOND, "Compare"])))
    images = [text_of(FIRST), text_of(SECOND)]
    options = {"temperature": 0, "num_predict": TOKENS}
    body = {"model": "small", "stream": False, "options": options}
    messages = [{"role": "user", "content": "Compare", "images": images}]
    assert seer.post(OLLAMA, body | {"messages": messages}).json()["message"]["content"] == wanted
    assert seer.post(GENERATE, body | {"prompt": "Compare", "images": images}).json()["response"] == wanted
    alone = seer.post(GENERATE, body | {"images": images[:1]}).json()["response"]
    assert alone == told(seer.service.model, user(python_parts([FIRST])))


def test_streams_read_images_and_responses_go_on_from_them(seer: Running) -> None:
    wanted = told(seer.service.model, user(python_parts(PARTS)))
    body = {"model": "small", "temperature": 0, "max_tokens": TOKENS, "messages": user(chat_parts(PARTS))}
    pieces = [event["choices"][0]["delta"].get("content", "") for event in seer.events(CHAT, body)]
    assert "".join(pieces) == wanted
    body = {"model": "small", "temperature": 0, "max_output_tokens": TOKENS, "input": user(inputs(PARTS))}
    first = answered(seer, RESPONSES, body)
    again = answered(seer, RESPONSES, body | {"previous_response_id": first["id"], "input": "And now?"})
    chat = [*user(python_parts(PARTS)), {"role": "assistant", "content": wanted}, *user("And now?")]
    assert again["output"][0]["content"][0]["text"] == told(seer.service.model, chat)


def test_results_of_tools_may_be_images(seer: Running) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat = [
        *user("Look"),
        {"role": "assistant", "content": "", "tool_calls": [call | {"function": {"name": "look", "arguments": {}}}]},
        {"role": "tool", "tool_call_id": "c", "content": python_parts([FIRST])},
    ]
    wanted = told(seer.service.model, chat)
    sent = [*user("Look"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    sent.append({"role": "tool", "tool_call_id": "c", "content": chat_parts([FIRST])})
    chatted = answered(seer, CHAT, {"messages": sent, "max_tokens": TOKENS})
    assert chatted["choices"][0]["message"]["content"] == wanted
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": blocks([FIRST])}
    turns = [*user("Look"), {"role": "assistant", "content": [use]}, *user([result])]
    assert answered(seer, MESSAGES, {"messages": turns, "max_tokens": TOKENS})["content"][0]["text"] == wanted
    items = [
        *user("Look"),
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": inputs([FIRST])},
    ]
    response = answered(seer, RESPONSES, {"input": items, "max_output_tokens": TOKENS})
    assert response["output"][0]["content"][0]["text"] == wanted


def test_constraints_and_descriptions_go_with_images(seer: Running) -> None:
    body = {"messages": user(chat_parts(PARTS)), "regex": "yes|no", "max_tokens": TOKENS}
    assert answered(seer, CHAT, body)["choices"][0]["message"]["content"] in ("yes", "no")
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    body = {"messages": user(chat_parts(PARTS)), "json_schema": schema, "trellm": {"describe": True}, "max_tokens": 40}
    assert json.loads(answered(seer, CHAT, body)["choices"][0]["message"]["content"])["a"] in (True, False)


def test_tokens_are_counted(seer: Running) -> None:
    counted = answered(seer, "/v1/messages/count_tokens", {"messages": user(blocks(PARTS))})["input_tokens"]
    chat = answered(seer, CHAT, {"messages": user(chat_parts(PARTS)), "max_tokens": 1})
    assert chat["usage"]["prompt_tokens"] == counted
    tokens = seer.post("/tokenize", {"messages": user(chat_parts(PARTS)), "return_token_strs": True}).json()
    assert tokens["count"] == counted == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert tokens["tokens"].count(-1) == chat["usage"]["prompt_tokens_details"]["image_tokens"]
    again = answered(seer, CHAT, {"messages": user(chat_parts(PARTS)), "max_tokens": 1, "n": 2})
    assert again["usage"]["prompt_tokens_details"]["image_tokens"] == tokens["tokens"].count(-1)
    plain = answered(seer, CHAT, {"messages": user("a"), "max_tokens": 1})
    assert plain["usage"]["prompt_tokens_details"].keys() == {"cached_tokens"}
    error = seer.error(CHAT, {"model": "small", "messages": user(chat_parts(PARTS)), "truncate_prompt_tokens": 9})
    assert error["param"] == "truncate_prompt_tokens"


def test_pixels_are_held_as_long_as_a_request(seer: Running) -> None:
    """More than there is room for at a time is refused, and what has ended leaves nothing behind."""
    large = file_of(200, 200)
    answered(seer, CHAT, {"messages": user(chat_parts([large, large, large, large])), "max_tokens": 1})  # read once
    several = [file_of(200, 200) for _ in range(3)]
    error = seer.error(CHAT, {"model": "small", "messages": user(chat_parts(several))})
    assert error["code"] == "invalid_image" and "more than 262,144 bytes together" in error["message"]
    until(lambda: seer.models.shared.media.held == 0)
    held = seer.models.shared.media
    held.held = 250_000
    try:
        error = seer.error(CHAT, {"model": "small", "messages": user(chat_parts([large]))}, 429)
        assert error["code"] == "too_many_requests"
    finally:
        held.held -= 250_000
    assert re.search(r"^trellm_media_bytes 0.0$", seer.http.get("/metrics").text, re.M)


REFUSED: list[tuple[str, str, str]] = [
    ("http://example.org/a.png", "unsupported_parameter", r"is a web address, and the server fetches no images"),
    ("HTTPS://example.org/a.png", "unsupported_parameter", "without --fetch-media; send a data URL"),
    ("file:///etc/passwd", "invalid_image", "the server opens no files"),
    ("/etc/passwd", "invalid_image", "the server opens no files"),
    ("ftp://example.org/a.png", "invalid_image", "the server opens no files"),
    ("", "invalid_image", "must be a data URL"),
    (" " + url_of(FIRST), "invalid_image", "must be a data URL"),
    (url_of(FIRST[:-60]), "invalid_image", "PNG file that is damaged or cut off"),
    (url_of(FIRST) + "!", "invalid_image", "is not valid base64"),
    (url_of(FIRST, "audio/wav"), "invalid_image", "of the type audio/wav"),
    (url_of(b"<svg/>", "image/svg+xml"), "invalid_image", "is in an unknown format"),
    (
        url_of(file_of(1001, 2)),
        "invalid_image",
        "the limit of a side is 1,000; .* the side in the server's image_limits",
    ),
    (url_of(file_of(700, 100)), "invalid_image", "limit is 65,536; .* raise --max-image-pixels of the server"),
    (url_of(bytes(300_000)), "invalid_image", "more than 262,144 bytes; .* raise --max-image of the server"),
]


@pytest.mark.parametrize(("url", "code", "message"), REFUSED, ids=lambda value: value[:24])
def test_what_is_no_image_is_refused_without_its_data(seer: Running, url: str, code: str, message: str) -> None:
    parts = [*chat_parts(["a"]), {"type": "image_url", "image_url": {"url": url}}]
    error = seer.error(CHAT, {"model": "small", "messages": user(parts)})
    assert (error["code"], error["param"]) == (code, "messages[0].content[1].image_url.url")
    assert re.match(f"image 1 of the request .*{message}", error["message"])
    assert "iVBOR" not in str(error) and "AAAA" not in str(error)
    bad = {"type": "input_image", "image_url": url}
    assert seer.error(RESPONSES, {"model": "small", "input": user([bad])})["code"] == code


PLACES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": user([{"type": "image_url"}])}, "messages[0].content[0].image_url is missing"),
    (CHAT, {"messages": user([{"type": "image_url", "image_url": {}}])}, "valid string"),
    (
        CHAT,
        {"messages": user([{"type": "image", "image": url_of(FIRST)}])},
        "type is 'text', 'image_url', 'input_audio' or 'audio_url'",
    ),
    (CHAT, {"messages": user([{"type": "image_url", "image_url": {"url": 3}}])}, "valid string"),
    (
        CHAT,
        {"messages": user([{"type": "image_url", "image_url": {"url": "", "a": url_of(FIRST)}}])},
        "unknown field",
    ),
    (CHAT, {"messages": user(url_of(FIRST).split(",")), "max_tokens": 1}, "object whose type is"),
    (MESSAGES, {"messages": user([{"type": "input_audio"}]), "max_tokens": 1}, "takes audio as input_audio"),
    (CHAT, {"messages": user([{"type": "video_url", "video_url": {"url": "a"}}])}, "video is not supported"),
    (CHAT, {"messages": user([{"type": "file", "file": {"file_data": text_of(FIRST)}}])}, "files are not supported"),
    (
        CHAT,
        {"messages": [{"role": "system", "content": chat_parts([FIRST])}]},
        "images and audio need the role user or tool",
    ),
    (
        CHAT,
        {"messages": user(chat_parts([FIRST] * 5))},
        "the request has 5 images and audio; the limit of this server is 4",
    ),
    (MESSAGES, {"messages": user([{"type": "image"}]), "max_tokens": 1}, "source is missing"),
    (
        MESSAGES,
        {"messages": user([{"type": "image", "source": {"type": "file", "file_id": "a"}}]), "max_tokens": 1},
        "files are not supported",
    ),
    (
        MESSAGES,
        {"messages": user([{"type": "document", "source": text_of(FIRST)}]), "max_tokens": 1},
        "files are not supported",
    ),
    (
        MESSAGES,
        {"messages": [*user("a"), {"role": "assistant", "content": blocks([FIRST])}], "max_tokens": 1},
        "the role assistant cannot have blocks of type image",
    ),
    (RESPONSES, {"input": user([{"type": "input_image", "file_id": "a"}])}, "should be None"),
    (RESPONSES, {"input": user([{"type": "input_file", "file_data": text_of(FIRST)}])}, "files are not supported"),
    (
        RESPONSES,
        {"input": [*user("a"), {"role": "assistant", "content": inputs([FIRST])}]},
        "images and audio need the role user or tool",
    ),
    (OLLAMA, {"messages": [{"role": "user", "content": "a", "images": text_of(FIRST)}]}, "valid list"),
    (OLLAMA, {"messages": [{"role": "user", "content": "a", "images": ["http://a/b.png"]}]}, "is not valid base64"),
    (GENERATE, {"prompt": "a", "images": [text_of(FIRST)], "raw": True}, "leave raw out"),
]


@pytest.mark.parametrize(("path", "body", "message"), PLACES, ids=lambda value: str(value)[:30])
def test_shapes_are_checked_without_data_in_errors(seer: Running, path: str, body: Any, message: str) -> None:
    answer = seer.post(path, {"model": "small", **body})
    assert answer.status_code == 400, answer.text
    assert message in answer.text and "iVBOR" not in answer.text


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, OLLAMA, GENERATE])
def test_a_model_that_reads_texts_alone_says_so(server: Running, path: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {"messages": user(chat_parts(PARTS))},
        MESSAGES: {"messages": user(blocks(PARTS)), "max_tokens": 1},
        RESPONSES: {"input": user(inputs(PARTS))},
        OLLAMA: {"messages": [{"role": "user", "content": "a", "images": [text_of(FIRST)]}]},
        GENERATE: {"prompt": "a", "images": [text_of(FIRST)]},
    }
    answer = server.post(path, {"model": "small", **bodies[path]})
    assert answer.status_code == 400
    assert "the model reads only texts; leave images out, or request a model that reads them" in answer.text


def test_what_the_server_says_of_itself(server: Running, seer: Running) -> None:
    for each, sees in ((server, False), (seer, True)):
        assert each.http.get("/props").json()["modalities"] == {"vision": sees, "audio": False}
        capabilities = each.post("/api/show", {"model": "small"}).json()["capabilities"]
        assert ("vision" in capabilities) == sees
    parts = server.http.get("/openapi.json").json()["components"]["schemas"]
    assert {"ImagePart", "ImageUrl", "ImageBlock", "InputImage"} <= parts.keys()


def test_bodies_have_room_for_images_where_they_are_read() -> None:
    for model, most in ((models.small(), 4 << 20), (seeing(), 32 << 20)):
        with TestClient(application(model, Settings())) as client:
            data = b'{"model": "small", "messages": [' + b" " * most
            answer = client.post(CHAT, content=data, headers={"Content-Type": "application/json"})
            assert answer.status_code == 413 and f"{most:,} bytes" in answer.text


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    page = "text/html", b"<html>"
    with serving(lambda path: ("image/jpeg", SECOND) if path == "/second.jpg" else page) as address:
        yield address


def test_images_are_fetched_where_the_operator_says_so(files: str) -> None:
    fetcher = nearby()
    for server in running(seeing(), replace(SETTINGS, fetcher=fetcher)):
        wanted = told(server.service.model, user(python_parts(PARTS)))
        parts = [*chat_parts(PARTS[:3]), {"type": "image_url", "image_url": {"url": f"{files}/second.jpg"}}]
        chat = answered(server, CHAT, {"messages": user(parts), "max_tokens": TOKENS})
        assert chat["choices"][0]["message"]["content"] == wanted
        source = {"type": "url", "url": f"{files}/second.jpg"}
        turn = user([*blocks(PARTS[:3]), {"type": "image", "source": source}])
        assert answered(server, MESSAGES, {"messages": turn, "max_tokens": TOKENS})["content"][0]["text"] == wanted
        item = user([*inputs(PARTS[:3]), {"type": "input_image", "image_url": f"{files}/second.jpg"}])
        response = answered(server, RESPONSES, {"input": item, "max_output_tokens": TOKENS})
        assert response["output"][0]["content"][0]["text"] == wanted
        parts[3] = {"type": "image_url", "image_url": {"url": f"{files}/other"}}
        error = server.error(CHAT, {"model": "small", "messages": user(parts)})
        assert (error["code"], error["param"]) == ("image_not_fetched", "messages[0].content[3].image_url.url")
        assert error["message"] == "image 2 of the request is sent with a Content-Type other than image/*"


def test_by_default_no_address_of_a_network_is_asked(files: str) -> None:
    for server in running(seeing(), replace(SETTINGS, fetcher=MediaFetcher())):
        for url in (f"{server.url}/second.jpg", files.replace("files.test", "localhost")):
            parts = [{"type": "image_url", "image_url": url}]
            error = server.error(CHAT, {"model": "small", "messages": user(parts)})
            assert error["code"] == "image_not_fetched" and "in a private network" in error["message"]


@needs_engine
def test_what_goes_together_with_images() -> None:
    """Calls of tools, special tokens that texts name, several texts and beams; and what is refused beside images."""
    from ...engine.image_models import TEMPLATE, build

    look = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "look", "parameters": look}}
    template = "{% if tools %}{{ tools | tojson }}{% endif %}" + TEMPLATE
    for server in running(models.transformers(*build("llava", template)), SETTINGS):
        named = {"messages": user(chat_parts(["an <image> or ", FIRST, " <image>?"]))}
        called = answered(server, CHAT, named | {"tools": [tool], "tool_choice": "required", "max_tokens": 60})
        (call,) = called["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["a"] in (1, 2)
        assert called["usage"]["prompt_tokens_details"]["image_tokens"] == 16
        for more in ({"n": 3, "temperature": 1}, {"trellm": {"beams": 3}}):
            assert answered(server, CHAT, named | more | {"max_tokens": 5})["usage"]["completion_tokens"] > 0
        for more, param in (
            ({"prompt_logprobs": 1}, "prompt_logprobs"),
            ({"trellm": {"fields": True}}, "trellm.fields"),
        ):
            error = server.error(CHAT, {"model": "small", "regex": "a|b", **named, **more})
            assert error["param"] == param and "has images" in error["message"]
