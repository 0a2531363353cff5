"""Audio in requests: what reaches the model, what is refused, and what is counted."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from trellm import Audio, AudioLimits, generate, models

from ...engine.audio_models import RATE, build, sound
from ...engine.media.test_audio import head, wav
from ..conftest import SETTINGS, Running, running, until
from .conftest import nearby, serving

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
FIRST, SECOND = wav(sound(0.6).samples, RATE), wav(sound(0.9, 1).samples, RATE, 1)
TOKENS = 12


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    with serving(lambda path: ("audio/x-wav" if path == "/second.wav" else "image/png", SECOND)) as address:
        yield address


@pytest.fixture(scope="module")
def hearer() -> Iterator[Running]:
    fetcher = nearby()
    limits = AudioLimits(file_bytes=1 << 17, seconds=2)
    settings = replace(SETTINGS, media=4, audio_limits=limits, media_bytes=1 << 18, fetcher=fetcher)
    yield from running(models.transformers(*build("qwen2_audio")), settings)


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def heard(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": text_of(data), "format": "wav"}}


def named(url: str) -> dict[str, Any]:
    return {"type": "audio_url", "audio_url": {"url": url}}


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def told(server: Running, *parts: str | bytes) -> str:
    """What the model answers in Python."""
    plain = [words(part) if isinstance(part, str) else {"type": "audio", "audio": Audio.of(part)} for part in parts]
    return generate.text(server.service.model)(user(plain), max_tokens=TOKENS)


def answered(server: Running, path: str, body: dict[str, Any]) -> Any:
    answer = server.post(path, {"model": "small", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_both_shapes_and_both_apis(hearer: Running, files: str) -> None:
    wanted = told(hearer, "What is ", FIRST, " beside ", SECOND)
    assert wanted != told(hearer, "What is ", FIRST, " beside ", FIRST)
    for second in (heard(SECOND), named(f"data:audio/wav;base64,{text_of(SECOND)}"), named(f"{files}/second.wav")):
        content = [words("What is "), heard(FIRST), words(" beside "), second]
        chat = answered(hearer, CHAT, {"messages": user(content), "max_tokens": TOKENS})
        assert chat["choices"][0]["message"]["content"] == wanted
    content = [{"type": "input_text", "text": "What is "}, heard(FIRST)]
    content += [{"type": "input_text", "text": " beside "}, heard(SECOND)]
    first = answered(hearer, RESPONSES, {"input": user(content), "max_output_tokens": TOKENS})
    assert first["output"][0]["content"][0]["text"] == wanted
    again = {"input": "And now?", "previous_response_id": first["id"], "max_output_tokens": 1}
    assert answered(hearer, RESPONSES, again)["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_tokens_are_counted(hearer: Running) -> None:
    messages = user([words("a"), heard(FIRST)])
    usage = answered(hearer, CHAT, {"messages": messages, "max_tokens": 1, "n": 2})["usage"]
    tokens = hearer.post("/tokenize", {"messages": messages, "return_token_strs": True}).json()
    details = usage["prompt_tokens_details"]
    assert details["audio_tokens"] == tokens["tokens"].count(-1) == 15 and "image_tokens" not in details
    assert usage["prompt_tokens"] == tokens["count"]
    assert hearer.http.get("/props").json()["modalities"] == {"vision": False, "audio": True}


def test_samples_are_held_as_long_as_a_request(hearer: Running) -> None:
    several = [heard(wav(sound(1.9, seed).samples, RATE)) for seed in range(3)]
    error = hearer.error(CHAT, {"model": "small", "messages": user(several)})
    assert error["code"] == "invalid_audio" and "take more than 262,144 bytes together" in error["message"]
    until(lambda: hearer.models.shared.media.held == 0)


LONG = wav(sound(3.0).samples, RATE, 1)
URL = "messages[0].content[1].audio_url.url"
REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    (named("/etc/passwd"), URL, "invalid_audio", "the server opens no files"),
    (named("file:///etc/passwd"), URL, "invalid_audio", "the server opens no files"),
    (named("data:image/png;base64,AAAA"), URL, "invalid_audio", "of the type image/png"),
    (named("data:audio/wav;base64,AAAA!"), URL, "invalid_audio", "is not valid base64"),
    (named("http://files.test/other"), URL, "audio_not_fetched", "its server does not answer"),
    (heard(b"<svg/>"), "messages[0].content[1].input_audio.data", "invalid_audio", "unknown format"),
    (heard(FIRST[:-9]), "messages[0].content[1].input_audio.data", "invalid_audio", "damaged or cut off"),
    (
        heard(head(1, 16000, 2, 2_000_000_000)), "messages[0].content[1].input_audio.data", "invalid_audio",
        "but the limit is 2 at 16,000 samples a second; cut it, or raise --max-audio-seconds of the server",
    ),
    (
        heard(LONG * 4), "messages[0].content[1].input_audio.data", "invalid_audio",
        "more than 131,072 bytes; compress it, or raise --max-audio of the server",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("part", "param", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_audio_is_refused(hearer: Running, part: Any, param: str, code: str, message: str) -> None:
    error = hearer.error(CHAT, {"model": "small", "messages": user([words("a"), part])})
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"].startswith("audio 1 of the request ") and message in error["message"]
    assert "AAAA" not in str(error)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, "/tokenize"])
def test_audio_that_the_model_does_not_read_is_named(hearer: Running, path: str) -> None:
    """The second of two, which is too short for the model, though not for the server."""
    short = heard(wav(sound(0.6).samples[:1], RATE))
    if path == RESPONSES:
        body, place = {"input": user([heard(FIRST), short])}, "input"
    else:
        body, place = {"messages": user([heard(FIRST), short])}, "messages[0].content[1].input_audio.data"
    error = hearer.error(path, body if path == "/tokenize" else {"model": "small", **body})
    assert (error["code"], error["param"]) == ("invalid_audio", place)
    assert error["message"].startswith("audio of 0.00 seconds is too short: it is 0 of the model's tokens")
    until(lambda: hearer.models.shared.media.held == 0)


def test_a_shape_of_audio_that_is_another_apis(hearer: Running) -> None:
    for path, body, place in ((CHAT, "messages", "messages"), (RESPONSES, "input", "input")):
        part = named("data:audio/wav;base64,AAAA") if path == RESPONSES else {"type": "audio", "audio": "a"}
        error = hearer.error(path, {"model": "small", body: user([part])})
        shapes = "input_audio" if path == RESPONSES else "input_audio or audio_url"
        assert error["param"] == f"{place}[0].content[0]"
        assert error["message"] == f"{error['param']} is not supported: here audio has the part type {shapes}"


def test_what_is_fetched_must_be_called_audio(hearer: Running, files: str) -> None:
    error = hearer.error(CHAT, {"model": "small", "messages": user([named(f"{files}/picture")])})
    assert error["message"] == "audio 1 of the request is sent with a Content-Type other than audio/*"
    error = hearer.error(CHAT, {"model": "small", "messages": user([heard(FIRST)] * 5)})
    assert error["message"] == "the request has 5 images and audio; the limit of this server is 4"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    error = hearer.error(CHAT, {"model": "small", "messages": user([picture])})
    assert (
        error["message"] == "the model reads only texts and audio; leave images out, or request a model that reads them"
    )


def test_a_model_that_reads_texts_alone_says_so(server: Running) -> None:
    for path, body in ((CHAT, {"messages": user([heard(FIRST)])}), (RESPONSES, {"input": user([heard(FIRST)])})):
        error = server.error(path, {"model": "small", **body})
        assert error["code"] == "unsupported_parameter"
        assert error["message"] == "the model reads only texts; leave audio out, or request a model that reads it"
