"""Bad input gets an error in OpenAI's shape that names it, and nothing ends the process."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trellm
from trellm import LimitError, Limits, OptionError, Sample, Vocabulary
from trellm.guides import RegexGuide

from .conftest import Running
from .support import KNOWN, ChatRequest, CompletionRequest, Options, api_error

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"model": "small", "prompt": "a", "temperature": NaN}', "invalid_json"),
        (b'{"model": "small", "prompt": "a", "temperature": Infinity}', "invalid_json"),
        (b'["model"]', "invalid_json"),
        (b"\xff\xfe{}", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"a": ' * 5_000 + b"1" + b"}" * 5_000, "invalid_json"),
        (b'{"model": "small", "prompt": "\\ud800"}', "not_text"),
        (b'{"model": "small", "prompt": "a", "\\udc00": 1}', "not_text"),
        (b'{"model": "small", "prompt": "a", "seed": ' + b"9" * 10_000 + b"}", "invalid_value"),
        (b'{"model": "small", "prompt": "a", "temperature": 1e999}', "invalid_value"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bodies(server: Running, data: bytes, code: str) -> None:
    assert server.error(TEXT, data)["code"] == code


FIELDS: list[tuple[str, dict[str, Any], str, str]] = [
    (TEXT, {"model": None}, "model", "invalid_value"),
    (TEXT, {"temperature": -1}, "temperature", "invalid_value"),
    (TEXT, {"temperature": "0.5"}, "temperature", "invalid_value"),
    (TEXT, {"max_tokens": -5}, "max_tokens", "invalid_value"),
    (TEXT, {"max_tokens": 0}, "max_tokens", "invalid_value"),
    (TEXT, {"max_tokens": 10**9}, "max_tokens", "invalid_value"),
    (TEXT, {"max_tokens": True}, "max_tokens", "invalid_value"),
    (TEXT, {"max_tokens": 1024}, "max_tokens", "context_length_exceeded"),
    (TEXT, {"top_p": 0}, "top_p", "invalid_value"),
    (TEXT, {"n": 17}, "n", "invalid_value"),
    (TEXT, {"n": 10**6}, "n", "invalid_value"),
    (TEXT, {"stop": ""}, "stop", "invalid_value"),
    (TEXT, {"stop_token_ids": [2560]}, "stop_token_ids", "invalid_value"),
    (TEXT, {"prompt": "kettle " * 2000}, "prompt", "context_length_exceeded"),
    (TEXT, {"prompt": "a" * 600_000}, "prompt", "context_length_exceeded"),
    (TEXT, {"prompt": [2560]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": []}, "prompt", "invalid_value"),
    (TEXT, {"prompt": ["a", 1]}, "prompt[1]", "invalid_value"),
    (TEXT, {"suffix": "b"}, "suffix", "unsupported_parameter"),
    (TEXT, {"echo": 1}, "echo", "invalid_value"),
    (TEXT, {"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    (TEXT, {"tempreature": 1}, "tempreature", "unknown_parameter"),
    (TEXT, {"trellm": {"beams": 4}, "temperature": 1}, "temperature", "invalid_value"),
    (TEXT, {"trellm": {"beams": 2}, "n": 3}, "n", "invalid_value"),
    (CHAT, {"messages": []}, "messages", "invalid_value"),
    (CHAT, {"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role", "invalid_value"),
    (CHAT, {"messages": [*HELLO, {"role": "user"}]}, "messages[1]", "invalid_value"),
    (CHAT, {"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "invalid_value"),
    (CHAT, {"messages": [{"content": "a"}]}, "messages[0].role", "missing_required_parameter"),
    (CHAT, {"messages": [{"role": "tool", "content": "a"}]}, "messages[0]", "invalid_value"),
    (CHAT, {"modalities": ["audio"]}, "modalities[0]", "invalid_value"),
    (CHAT, {"store": "yes"}, "store", "invalid_value"),
    (CHAT, {"audio": {}}, "audio", "unsupported_parameter"),
    (CHAT, {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "invalid_value"),
    (CHAT, {"messages": [{"role": "user", "content": "kettle " * 2000}]}, "messages", "context_length_exceeded"),
]


@pytest.mark.parametrize(("path", "body", "param", "code"), FIELDS, ids=lambda value: str(value)[:50])
def test_fields(server: Running, path: str, body: dict[str, Any], param: str, code: str) -> None:
    usual: dict[str, Any] = {"model": "small"} | ({"messages": HELLO} if path == CHAT else {"prompt": "Hello"})
    error = server.error(path, usual | body)
    assert (error["param"], error["code"]) == (param, code), error
    assert error["type"] == "invalid_request_error"


FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"response_format": {**FORMAT, "strict": True}}, "/response_format/strict", "unknown_parameter"),
        ({"response_format": {"type": "json_schema"}}, "/response_format/json_schema", "missing_required_parameter"),
        ({"response_format": {"type": "grammar"}}, "/response_format", "invalid_value"),
        ({"response_format": {}}, "/response_format", "invalid_value"),
        ({"trellm": {"include": [{"phrase": "a", "word": None}]}}, "/trellm/include/0/word", "invalid_value"),
        ({"trellm": {"include": [{"phrase": "a", "wrd": True}]}}, "/trellm/include/0/wrd", "unknown_parameter"),
        ({"trellm": {"include": [{"any_of": [{"phrase": 3}]}]}}, "/trellm/include/0/any_of/0/phrase", "invalid_value"),
        ({"trellm": {"beams": {"widht": 3}}}, "/trellm/beams/widht", "unknown_parameter"),
        ({"trellm": {"beams": {"width": 3, "sibling_penalty": -1}}}, "/trellm/beams/sibling_penalty", "invalid_value"),
    ],
    ids=str,
)
def test_the_alternative_that_was_meant_is_looked_at(
    server: Running, body: dict[str, Any], pointer: str, code: str
) -> None:
    error = server.error(CHAT, {"model": "small", "messages": HELLO, **body})
    assert (error["pointer"], error["code"]) == (pointer, code), error
    assert "discriminator" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (TEXT, {"prompt": "a", "max_tokens": 1}, "max_tokens"),
        (CHAT, {"messages": HELLO, "max_completion_tokens": 1}, "max_completion_tokens"),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1}, "max_output_tokens"),
        (TEXT, {"prompt": "a", "stop_token_ids": [2560], "regex": None}, "stop_token_ids"),
    ],
)
def test_messages_have_the_names_of_fields(server: Running, path: str, body: dict[str, Any], field: str) -> None:
    error = server.error(path, {"model": "small", "regex": "[0-9]{5}", **body})
    assert error["param"] == field and re.match(rf"{field}\b", error["message"]), error


def test_what_is_null_is_not_asked_for(server: Running) -> None:
    """Some clients write all fields that there are; a name that is misspelt is one all the same."""
    asked: dict[str, dict[str, Any]] = {
        CHAT: {"messages": HELLO, "max_tokens": 1},
        TEXT: {"prompt": "a", "max_tokens": 1},
        "/v1/responses": {"input": "a", "max_output_tokens": 1},
    }
    for path, body in asked.items():
        for name in ("trellm", *KNOWN):
            answer = server.post(path, {"model": "small", **body, name: None})
            assert answer.status_code == 200, answer.text
        assert server.error(path, {"model": "small", **body, "temprature": None})["code"] == "unknown_parameter"


def test_the_pages_have_every_code() -> None:
    root = Path(trellm.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in (root / "serve").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'code="(\w+)"', source)}
    pages = [(root / "docs" / name).read_text(encoding="utf-8") for name in ("serve.md", "scale.md")]
    assert len(codes) > 20
    unread = {"client_closed_request"}  # by whoever went away
    assert not {code for code in codes - unread if not any(f"`{code}`" in page for page in pages)}


def test_what_the_engine_refuses_names_the_field() -> None:
    known = ChatRequest.model_fields.keys() & {each.name for each in (*fields(Options), *fields(Sample))}
    lacking = [name for name in known if api_error(OptionError(f"{name}=3: a number")).error["param"] != name]
    assert len(known) > 15 and not lacking, "add them to _OPTIONS of serve/errors.py"


def test_the_page_has_every_field() -> None:
    page = (Path(trellm.__file__).parent / "docs" / "serve.md").read_text(encoding="utf-8")
    named = {*re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", page)))}
    known = {**ChatRequest.model_fields, **CompletionRequest.model_fields}
    assert not {field.alias or name for name, field in known.items()} - named, "docs/serve.md tells what they do"


@pytest.mark.parametrize("prompt", ["kettle " * 2000, "a" * 600_000, "a"], ids=["tokens", "characters", "budget"])
def test_clients_know_a_prompt_that_is_too_long(server: Running, prompt: str) -> None:
    """LiteLLM, for one, looks for OpenAI's words, not for the code."""
    error = server.error(TEXT, {"model": "small", "prompt": prompt, "max_tokens": 1024})
    assert error["code"] == "context_length_exceeded"
    assert error["message"].endswith("This model's maximum context length is 1024 tokens")


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        ('{"a": NaN}', "invalid_json"),
        ('{"a": 1, "a": 2}', "invalid_json"),
        ('{"a": ', "invalid_json"),
        ("[" * 300 + "]" * 300, "invalid_json"),
        ('{"\\ud800": {"a": "b"}}', "not_text"),
        ('{"format": {"type": "const_string", "value": "\\ud800"}}', "not_text"),
    ],
    ids=lambda value: value[:20],
)
def test_json_within_json(server: Running, inner: str, code: str) -> None:
    """It is read as bodies are, and the error says where it stands."""
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": inner}}
    for body, param in (
        ({"guided_json": inner}, "guided_json"),
        ({"structured_outputs": {"structural_tag": inner}}, "structured_outputs.structural_tag"),
        (
            {"messages": [*HELLO, {"role": "assistant", "tool_calls": [called]}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
    ):
        error = server.error(CHAT, {"model": "small", "messages": HELLO, **body})
        assert error["param"].startswith(param) and error["code"] == code, error
        assert param in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"a" * 500_000: 1}, "a"),
        ({"logit_bias": {"a" * 500_000: 1}}, "logit_bias.a"),
        ({"grammar": "a" * 500_000}, "grammar"),
        ({"ebnf": f"root ::= {'a' * 500_000}"}, "ebnf"),
        ({"guided_json": {"properties": {"a" * 500_000: {"type": "no"}}}}, "guided_json"),
        ({"guided_json": {"$ref": f"#/{'a' * 500_000}"}}, "guided_json"),
        ({"response_format": {"type": "a" * 500_000}}, "response_format"),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "any_text", "a" * 500_000: 1}}},
            "response_format.format.a",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_texts_of_megabytes_are_not_told_again(server: Running, body: dict[str, Any], param: str) -> None:
    error = server.error(TEXT, {"model": "small", "prompt": "a", **body})
    assert error["param"].startswith(param) and len(json.dumps(error)) < 20_000


def test_pointers(server: Running) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, image]}]
    error = server.error(CHAT, {"model": "small", "messages": messages})
    assert (error["pointer"], error["code"]) == ("/messages/0/content/1/image_url/url", "unsupported_parameter")


@pytest.mark.parametrize("path", [TEXT, CHAT, "/v1/responses", "/constraint", "/tokenize"])
def test_a_model_that_there_is_not(server: Running, path: str) -> None:
    """As OpenAI says it, so that clients raise what they raise there."""
    given = {CHAT: {"messages": HELLO}, "/v1/responses": {"input": "a"}, "/constraint": {"regex": "a"}}
    error = server.error(path, {"model": "gpt-5", **given.get(path, {"prompt": "a"})}, 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_bodies_that_are_too_large(server: Running) -> None:
    data = json.dumps({"model": "small", "prompt": "a" * (10 << 20)}).encode()
    assert server.error(TEXT, data, 413)["code"] == "request_too_large"

    def parts() -> Any:  # sent in chunks, without a length
        for _ in range(300):
            yield b" " * 8192

    answer = server.http.post(TEXT, content=parts(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_other_media_types_are_refused(server: Running) -> None:
    """Which is what makes a page of another origin ask beforehand whether it may send this."""
    answer = server.http.post(TEXT, content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chats", 404), ("GET", TEXT, 405), ("POST", "/", 405), ("POST", "/v1", 404)],
)
def test_addresses_that_there_are_not(server: Running, method: str, path: str, status: int) -> None:
    answer = server.http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_headers_that_are_too_long(server: Running) -> None:
    answer = server.http.get("/health", headers={"X-Long": "a" * (48 << 10)})
    assert answer.status_code in (400, 431)
    assert server.http.get("/health").status_code == 200


def test_the_document_describes_the_fields(server: Running) -> None:
    document = server.http.get("/openapi.json").json()
    fields = document["components"]["schemas"]["Chat"]["properties"]
    assert {"messages", "response_format", "structured_outputs", "trellm", "stop"} <= fields.keys()
    shape = document["paths"]["/api/show"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert shape == {"$ref": "#/components/schemas/OllamaName"}
    (key,) = document["paths"]["/v1/responses/{key}"]["delete"]["parameters"]
    assert (key["name"], key["in"], key["required"]) == ("key", "path", True)


def test_the_document_has_every_address_of_the_page(server: Running) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    page = (Path(trellm.__file__).parent / "docs" / "serve.md").read_text(encoding="utf-8")
    table = page.partition("## Endpoints")[2].partition("\n\n## ")[0].split("\n\nAll addresses")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith(("| `GET", "| `POST"))]
    told = {re.sub(r"\{\w+\}", "{}", path) for row in rows for path in re.findall(r"/[\w/{}.]*", row)}
    assert len(told) > 20 and not told - {re.sub(r"\{\w+\}", "{}", path) for path in paths}
    assert all(said["summary"] for methods in paths.values() for said in methods.values())


def test_what_only_callers_of_python_can_set_is_not_named(server: Running) -> None:
    schema = {"$ref": "https://example.org/other.json"}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = server.post(CHAT, {"model": "small", "messages": HELLO, "response_format": wanted})
    said = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "put what it refers to under $defs" in said and "resources=" not in said


def test_a_schema_that_is_too_large_is_told_with_its_place(server: Running) -> None:
    schema = {"properties": {"a": {"uniqueItems": True, "items": {"type": "number"}, "minItems": 101}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = server.post(CHAT, {"model": "small", "messages": HELLO, "response_format": wanted})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "constraint_too_large")
    assert error["param"] == "response_format.json_schema.schema"
    assert error["pointer"] == "/response_format/json_schema/schema/properties/a/uniqueItems"
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    answer = server.post(CHAT, {"model": "small", "messages": HELLO, "tools": [tool], "tool_choice": "required"})
    assert answer.status_code == 400 and answer.json()["error"]["pointer"].endswith("/properties/a/uniqueItems")


def test_limits_are_named_as_the_server_has_them() -> None:
    with pytest.raises(LimitError) as refused:
        RegexGuide("(a|b){1,900}" * 3, Vocabulary.from_bytes(), limits=Limits(work=1000))
    assert "raise --max-work of the server" in api_error(refused.value).error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/v1/completions", {"prompt": "a", "structured_outputs": {"regex": "a", "choice": ["a"]}},
         "structured_outputs.choice", "structured_outputs.regex and structured_outputs.choice"),
        ("/v1/completions", {"prompt": ["a"] * 100}, "prompt", "ask for fewer"),
        ("/v1/completions", {"prompt": "a", "best_of": 17, "temperature": 1}, "best_of", "best_of=17"),
        ("/v1/completions", {"prompt": "a", "": 1}, None, "unknown field ''"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"self": 1}},
         "chat_template_kwargs", "only the engine sets it"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"tools": 1}},
         "chat_template_kwargs", "give the option tools"),
        ("/v1/responses", {"input": "a", "stop": "b"}, "stop", "only /v1/chat/completions and /v1/completions have it"),
        ("/v1/responses", {"input": "a", "modalities": ["text"]}, "modalities", "only /v1/chat/completions has it"),
        (TEXT, {"prompt": "a", "bad_words": ["b", ""]}, "bad_words[1]", "bad_words[1]='': string should have at least"),
        (TEXT, {"prompt": "a", "regex": "[a-z]+", "allowed_token_ids": [5]}, "allowed_token_ids",
         "allowed_token_ids: at step 0 of prompt 0 every token that the constraint"),
        (TEXT, {"prompt": "a", "trellm": {"frame": ["", ""]}}, "trellm.frame", "frame of '' and '': expected a text"),
        (TEXT, {"prompt": "a", "regex": "a", "trellm": {"frame": ["", ""]}}, "trellm.frame", "trellm.frame of"),
        (TEXT, {"prompt": "a", "regex": "[a-z]+", "trellm": {"frame": ["a", "z"]}}, "trellm.frame", "mark 'z'"),
        (TEXT, {"prompt": "a", "trellm": {"frame": "sentence"}}, "trellm.frame", "not free text"),
        (TEXT, {"prompt": "a", "regex": "frame=(", "trellm": {"frame": ["a", ""]}}, "regex", "frame=("),
        (TEXT, {"prompt": "a", "regex": "a", "trellm": {"fields": True, "beams": 2}}, "trellm.fields",
         "trellm.fields with trellm.beams: tokens are scored as they are chosen; leave trellm.beams out"),
        (TEXT, {"prompt": "a", "regex": "a+", "trellm": {"fields": True, "include": ["aa"]}}, "trellm.fields",
         "trellm.fields with trellm.include: required content"),
        (TEXT, {"prompt": "a", "trellm": {"fields": True}}, "trellm.fields", "not free text"),
        (TEXT, {"prompt": "a", "prompt_logprobs": 1, "trellm": {"beams": 2}}, "prompt_logprobs",
         "prompt_logprobs=1 with trellm.beams: leave trellm.beams out"),
        (TEXT, {"prompt": "a", "echo": True, "logprobs": 1, "stream": True}, None, "echo with logprobs cannot be"),
        (TEXT, {"prompt": [40, 41], "guided_json": {}, "trellm": {"describe": True}}, "prompt",
         "trellm.describe appends the schema"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_is_named(server: Running, path: str, body: dict[str, Any], param: str | None, said: str) -> None:
    error = server.error(path, {"model": "small", **body})
    assert error["param"] == param and said in error["message"], error
    assert not re.search(r"=True|Greedy\(|Sample\(|Beam\(|logit_bias|None", error["message"]), "words of Python"
