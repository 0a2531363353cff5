"""Constraints in the fields of OpenAI, vLLM, SGLang, llama.cpp and our own: each holds, and none is dropped."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from trellm import models

from ..conftest import PASSAGE, SETTINGS, Running, running

DATE = "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "size": {"enum": [1, 2]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
LARK = 'start: "on " /[0-3]/ "/" /[0-9]/'
GBNF = 'root ::= "on " [0-3] "/" day\nday ::= [0-9]'
AS_GRAMMAR = r"on [0-3]/[0-9]"


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ({"structured_outputs": {"regex": "[xyz]{3}"}}, "[xyz]{3}"),
        ({"regex": "[xyz]{3}"}, "[xyz]{3}"),
        ({"guided_regex": "[xyz]{3}"}, "[xyz]{3}"),
        ({"structured_outputs": {"choice": ["north", "south"]}}, "north|south"),
        ({"guided_choice": ["north", "south"]}, "north|south"),
        ({"structured_outputs": {"grammar": LARK}}, AS_GRAMMAR),
        ({"structured_outputs": {"grammar": GBNF}}, AS_GRAMMAR),
        ({"guided_grammar": LARK}, AS_GRAMMAR),
        ({"grammar": GBNF}, AS_GRAMMAR),
        ({"ebnf": GBNF}, AS_GRAMMAR),
        ({"regex": "[xyz]+", "trellm": {"include": ["zz"]}}, "[xyz]*zz[xyz]*"),
        ({"regex": "[xyz]{9}", "trellm": {"beams": 3}}, "[xyz]{9}"),
    ],
    ids=str,
)
def test_texts_match(server: Running, body: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, server.text("Say: ", max_tokens=16, **body))


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA), "disable_any_whitespace": True}},
        {"guided_json": SCHEMA},
        {"json_schema": json.dumps(SCHEMA)},
        {"json_schema": SCHEMA},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, 2])
def test_json_satisfies_its_schema(server: Running, body: dict[str, Any], seed: int) -> None:
    """At a temperature that makes nonsense, and in the fewest tokens that may be enough."""
    text = server.text("JSON: ", max_tokens=24, temperature=3.0, seed=seed, **body)
    jsonschema.validate(json.loads(text), SCHEMA)


def test_white_space_ends(server: Running) -> None:
    """A model that would write blanks for ever: the constraint leaves it a bounded number."""
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 3}
    answer = server.complete(
        "[ \n\n\n\n\n\n\n\n", max_tokens=40, response_format=_format(schema), temperature=4.0, seed=3
    )
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert len(json.loads(answer["choices"][0]["text"])) >= 3


def _format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def test_extraction_has_its_place(server: Running) -> None:
    answer = server.complete(
        f"{PASSAGE}\n\nWho bought it? Quote the text.\nAnswer: ", trellm={"extract": {"context": PASSAGE}}
    )
    span = answer["choices"][0]["trellm"]["span"]
    assert span["text"] == answer["choices"][0]["text"] == PASSAGE[span["start"] : span["end"]]
    assert span["occurrences"] == [[0, span["start"], span["end"]]]


CHAT = [{"role": "user", "content": f"{PASSAGE}\n\nWho bought it? Quote the text."}]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_text_around_an_answer(server: Running, is_streamed: bool) -> None:
    """The frame is no part of the answer; the model reads what stands before, and writes the mark."""
    frame = ["The buyer is (", ")"]
    for ours, allowed in [
        ({"extract": {"context": PASSAGE}, "frame": frame}, "[A-Z].*"),
        ({"frame": frame}, "[^)]*"),
    ]:
        body = {"model": "small", "messages": CHAT, "temperature": 0, "max_tokens": 40, "trellm": ours}
        said = _said(server, body, is_streamed)
        assert re.fullmatch(allowed, said), said
    prompt: dict[str, Any] = {"model": "small", "prompt": f"{PASSAGE}\n\nWho bought it?\n", "temperature": 0}
    prompt["structured_outputs"] = {"regex": "[A-Za-z ]+"}
    for heal in (False, True):
        answer = server.post("/v1/completions", prompt | {"trellm": {"frame": frame, "heal": heal}}).json()
        assert re.fullmatch("[A-Za-z ]+", answer["choices"][0]["text"])
        alone = server.post("/v1/completions", prompt).json()["usage"]["prompt_tokens"]
        assert answer["usage"]["prompt_tokens"] > alone


NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def test_a_schema_is_written_into_the_prompt(server: Running) -> None:
    """The model reads what the client could have written itself."""
    described = 'Who?\nAnswer with JSON like this:\n{"a": integer}'
    ours = {"structured_outputs": {"json": NAMED}, "trellm": {"describe": True}, "temperature": 0}

    def count(path: str, body: dict[str, Any]) -> int:
        answer = server.post(path, {"model": "small", **body})
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        return usage.get("prompt_tokens", usage.get("input_tokens"))

    for path, field, shown, wrapped in [
        ("/v1/completions", "prompt", described + "\n", lambda text: text),
        ("/v1/chat/completions", "messages", described, lambda text: [{"role": "user", "content": text}]),
    ]:
        plain = {name: ours[name] for name in ("structured_outputs", "temperature")}
        assert count(path, {field: wrapped("Who?"), **ours}) == count(path, {field: wrapped(shown), **plain})
        assert count(path, {field: wrapped("Who?"), **plain}) < count(path, {field: wrapped(shown), **plain})
    schema = {"type": "json_schema", "name": "x", "schema": NAMED}
    item = {"text": {"format": schema}, "temperature": 0}
    asked = count("/v1/responses", {"input": "Who?", "trellm": {"describe": True}, **item})
    assert asked == count("/v1/responses", {"input": described, **item})


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_how_likely_each_value_is(server: Running, path: str) -> None:
    schema = {**NAMED, "properties": {"a": {"type": "boolean"}}}
    field, prompt = ("prompt", "Who?") if path == "/v1/completions" else ("messages", CHAT)
    body = {"model": "small", field: prompt, "temperature": 0, "structured_outputs": {"json": schema}}
    choice = server.post(path, body | {"trellm": {"fields": True}}).json()["choices"][0]
    found = choice["trellm"]["fields"]["/a"]
    assert choice["logprobs"] is None
    assert found["exact"] is True
    assert found["value"] is found["alternatives"][0]["value"]
    assert {each["value"] for each in found["alternatives"]} == {True, False}
    assert sum(each["probability"] for each in found["alternatives"]) == pytest.approx(1, abs=1e-4)
    assert "trellm" not in server.post(path, body).json()["choices"][0]
    error = server.error(path, body | {"trellm": {"fields": True}, "stream": True})
    assert error["param"] == "stream"
    free = {"model": "small", field: prompt, "trellm": {"fields": True}}
    error = server.error(path, free)
    assert "free text" in error["message"]
    assert error["param"] == "trellm.fields"


def test_schemas_that_cannot_be_written_into_prompts(server: Running) -> None:
    ours = {"model": "small", "structured_outputs": {"json": NAMED}, "trellm": {"describe": True}}
    error = server.error("/v1/completions", ours | {"prompt": [72, 105]})
    assert "the prompt is token ids" in error["message"]
    assert error["param"] == "prompt"
    error = server.error("/v1/chat/completions", ours | {"messages": [{"role": "system", "content": "Hi"}]})
    assert "the chat has none" in error["message"]
    assert error["param"] == "messages"
    free = {"model": "small", "prompt": "Who?", "trellm": {"describe": True}}
    assert "the request has none" in server.error("/v1/completions", free)["message"]


def _said(server: Running, body: dict[str, Any], is_streamed: bool) -> str:
    if not is_streamed:
        return server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    lines = server.post("/v1/chat/completions", body | {"stream": True}).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_sentence_that_names_the_answer(server: Running, is_streamed: bool) -> None:
    """The content is the choice alone; without being asked for there is no sentence, since clients read its tokens."""
    body: dict[str, Any] = {"model": "small", "messages": CHAT, "temperature": 0, "max_tokens": 60}
    for constraint in ({"choice": ["the buyer", "a kettle"]}, {"regex": "[0-9]+"}):
        asked = body | {"structured_outputs": constraint, "trellm": {"frame": "sentence"}}
        said = _said(server, asked, is_streamed)
        assert said in constraint.get("choice", []) or said.isdigit(), said
        alone = server.post("/v1/chat/completions", asked | {"trellm": {}}).json()["usage"]
        framed = server.post("/v1/chat/completions", asked).json()["usage"]
        assert framed["prompt_tokens"] > alone["prompt_tokens"]
    schema = body | {"response_format": _format(NAMED), "trellm": {"frame": "sentence"}}
    assert "needs a choice" in server.error("/v1/chat/completions", schema)["message"]


@pytest.fixture(scope="module")
def wordy() -> Iterator[Running]:
    """A server of a model that puts words around its answers, as large ones do."""
    model: Any = models.small()
    model.answers_bare = False
    yield from running(model, SETTINGS)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_json_stands_in_a_block_of_code(wordy: Running, *, is_streamed: bool) -> None:
    """The model reads its first line among the prompt's tokens, and the content is JSON alone."""
    server = wordy
    body: dict[str, Any] = {"model": "small", "messages": CHAT, "temperature": 0, "response_format": _format(SCHEMA)}
    for _ in range(2):
        jsonschema.validate(json.loads(_said(server, body, is_streamed)), SCHEMA)
    answers = [server.post("/v1/chat/completions", body | {"trellm": ours}).json() for ours in ({}, {"frame": None})]
    framed, alone = (answer["usage"]["prompt_tokens"] for answer in answers)
    assert framed > alone
    assert answers[0]["choices"][0]["message"]["content"] == _said(server, body, is_streamed)
    goes_on = body | {"messages": [*CHAT, {"role": "assistant", "content": "Well: "}], "continue_final_message": True}
    assert _said(server, goes_on, is_streamed).startswith("{")


def test_mistakes_of_text_around_an_answer(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "messages": CHAT}
    for ours, said in [({"frame": ["a"]}, "frame"), ({"frame": ["", ""]}, "or both"), ({"frame": "x"}, "frame")]:
        assert said in server.error("/v1/chat/completions", body | {"trellm": ours})["message"]
    loose = body | {"structured_outputs": {"regex": ".*"}, "trellm": {"frame": ["", "."]}}
    assert "may contain the closing mark" in server.error("/v1/chat/completions", loose)["message"]
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    called = server.error("/v1/chat/completions", body | {"tools": tools, "trellm": {"frame": ["a", "b"]}})
    assert called["param"] == "trellm.frame"


def test_spans_of_quoted_strings(server: Running) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string", "x-quote": "text"}}, "required": ["who"]}
    answer = server.complete(
        f"{PASSAGE}\nJSON: ", response_format=_format(schema), trellm={"json": {"contexts": {"text": PASSAGE}}}
    )
    span = answer["choices"][0]["trellm"]["spans"]["/who"]
    assert json.loads(answer["choices"][0]["text"])["who"] == PASSAGE[span["start"] : span["end"]]


def test_goals(server: Running) -> None:
    goals = [{"ordered": ["kettle", {"phrase": "paid", "word": True}]}, {"any_of": ["tin", "sea"]}]
    text = server.text("Write a sentence.\nAnswer: ", trellm={"include": goals}, max_tokens=40)
    assert re.search(r"kettle.*\bpaid\b", text, re.S) and re.search("tin|sea", text)
    template = {"template": ["the", {"gap": {"max_words": 2}}, "kettle"]}
    assert re.search("the.*kettle", server.text("Say ", trellm={"include": [template]}, max_tokens=30), re.S)


def test_traces(server: Running) -> None:
    answer = server.complete(DATE, regex=r"\d{4}-\d{2}-\d{2}", trellm={"trace": True})["choices"][0]
    trace = answer["trellm"]["trace"]
    assert "".join(step["token"] for step in trace["steps"] if step["token"]) == answer["text"]
    assert trace["raw_logprob"] - trace["logprob"] == pytest.approx(trace["log_feasible_mass"])


def test_healing_may_be_left_out(server: Running) -> None:
    """The prompt ends within a token that no tokenizer would have cut there."""
    heal = [server.text("The parcel was se", max_tokens=8, trellm={"heal": heal}) for heal in (True, False)]
    assert heal[0] != heal[1]


def test_streams_are_constrained_too(server: Running) -> None:
    body = {"model": "small", "prompt": DATE, "structured_outputs": {"regex": "[äöü🚀]{6}"}, "temperature": 2.0, "n": 2}
    events = server.events("/v1/completions", body)
    for index in range(2):
        pieces = [each["choices"][0]["text"] for each in events if each["choices"][0]["index"] == index]
        assert "�" not in "".join(pieces)
        assert re.fullmatch("[äöü🚀]{6}", "".join(pieces))


STRUCTURES = [{"begin": "<f=size>", "schema": {"enum": [11, 22]}, "end": "</f>"}]


def test_structural_tags(server: Running) -> None:
    tag = {"type": "structural_tag", "structures": STRUCTURES, "triggers": ["<f="]}
    text = server.text("<f=size>11</f>\n<f=size>22</f>\n", response_format=tag, max_tokens=60, temperature=1.5, seed=4)
    for found in re.findall("<f=size>(.*?)(?:</f>|$)", text, re.S):
        assert found in ("11", "22")
    again = server.complete("Say: ", structured_outputs={"structural_tag": json.dumps(tag)}, max_tokens=4)
    assert again["choices"][0]["finish_reason"] in ("stop", "length")


TAG = "invalid_structural_tag"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"regex": "(a"}, "regex", "invalid_regex"),
    ({"regex": r"(a)\1"}, "regex", "invalid_regex"),
    ({"structured_outputs": {"grammar": "start: (a"}}, "structured_outputs.grammar", "invalid_grammar"),
    ({"ebnf": 'root ::= ("a"'}, "ebnf", "invalid_grammar"),
    ({"grammar": "root ::= nothing"}, "grammar", "invalid_grammar"),
    ({"guided_grammar": "%import .secrets.NAME\nstart: NAME"}, "guided_grammar", "invalid_grammar"),
    ({"response_format": _format({"type": "strnig"})}, "response_format.json_schema.schema", "invalid_json_schema"),
    ({"guided_json": {"$ref": "file:///etc/passwd"}}, "guided_json", "invalid_json_schema"),
    ({"guided_json": {"$ref": "https://example.org/a.json"}}, "guided_json", "invalid_json_schema"),
    ({"guided_json": "{"}, "guided_json", "invalid_json"),
    ({"guided_json": {"enum": []}}, "guided_json", "invalid_json_schema"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "invalid_value"),
    ({"structured_outputs": {}}, "structured_outputs", "invalid_value"),
    ({"regex": "a", "ebnf": GBNF}, "ebnf", "invalid_value"),
    ({"regex": "a", "trellm": {"json": {}}}, "trellm.json", "invalid_value"),
    ({"regex": "a{9999999}"}, "max_tokens", "budget_too_small"),
    ({"trellm": {"extract": {"context": ""}}}, "trellm.extract", "impossible_constraint"),
    ({"trellm": {"include": [""]}}, "trellm.include", "invalid_value"),
    ({"trellm": {"beems": 3}}, "trellm.beems", "unknown_parameter"),
    (
        {"response_format": {"type": "structural_tag", "format": {}}},
        "response_format.format.type",
        "invalid_structural_tag",
    ),
]


@pytest.mark.parametrize(("body", "param", "code"), REFUSED, ids=lambda value: str(value)[:60])
def test_constraints_that_cannot_be(server: Running, body: dict[str, Any], param: str, code: str) -> None:
    error = server.error("/v1/completions", {"model": "small", "prompt": "a", **body})
    assert (error["param"], error["code"]) == (param, code), error


def test_places_within_constraints(server: Running) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": "3"}}}
    error = server.error("/v1/completions", {"model": "small", "prompt": "a", "guided_json": schema})
    assert error["pointer"] == "/guided_json/properties/a/minimum"
    error = server.error("/v1/completions", {"model": "small", "prompt": "a", "ebnf": 'root ::= "a"\nb := "c"'})
    assert (error["line"], error["column"]) == (2, 3)
    assert error["message"].endswith("^")


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_budgets_in_which_nothing_fits(server: Running, field: str) -> None:
    chat = [{"role": "user", "content": "Date?"}]
    body: dict[str, Any] = {"model": "small", "messages": chat, "regex": r"\d{4}-\d{2}-\d{2}"}
    error = server.error("/v1/chat/completions", {**body, field: 9})
    assert (error["code"], error["param"], error["needed"]) == ("budget_too_small", field, 10)
    answer = server.post("/v1/chat/completions", {**body, field: 10}).json()
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", answer["choices"][0]["message"]["content"])
