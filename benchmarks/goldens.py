"""Recordings of what the package answers, against which a change that should change nothing is compared.

    python benchmarks/goldens.py record path/to/folder [--tokenizer DIR --schemas FILE [--sample 150]] [--only KIND]
    python benchmarks/goldens.py compare path/to/folder [--tokenizer DIR --schemas FILE] [--only KIND]

Four kinds, a file of JSON lines each: `calls`, the tokens of 500 seeded calls over guides, searches, options, models;
`masks` of JSON Schemas along their instances, of a file of lines {"id", "schema", "tests": [{"data"}]}; `requests` to a
server of the small model, streams put together; `commands` and what they print. All speak to the public face alone. A
recording that was broken off goes on where it ended. `compare` runs what the folder has, prints what differs, and exits
with 1 if anything does but messages of errors, and greedy tokens that another one was within 1e-4 of.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

CALLS = 500
NEAR = 1e-4
SHORT = 300
"""So many characters of a text are kept; a longer one is kept by its hash."""
Work = Callable[[], dict[str, Any]]
Cases = Iterator[tuple[str, Work]]

PASSAGE = (
    "On 3 March 2021, Brela Stonkard bought 12 units of the copper kettle from Velmor Trading for $1,250.50. "
    "The bill has not been paid."
)
ORDER = {
    "type": "object",
    "properties": {
        "buyer": {"type": "string", "maxLength": 12},
        "count": {"type": "integer", "minimum": 1, "maximum": 40},
        "paid": {"type": "boolean"},
    },
    "required": ["buyer", "count", "paid"],
}
SCHEMAS: dict[str, Any] = {
    "order": ORDER,
    "choices": {"enum": ["red", "green", 3, None, {"a": [1]}]},
    "numbers": {"type": "array", "items": {"type": "number", "multipleOf": 0.5, "minimum": -3}, "maxItems": 3},
    "unique": {"type": "array", "items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True, "minItems": 3},
    "either": {"oneOf": [{"type": "integer", "minimum": 5}, {"type": "string", "pattern": "^[ab]{2,4}$"}]},
    "tree": {
        "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "maxProperties": 1}},
        "$ref": "#/$defs/tree",
    },
    "formats": {"type": "string", "format": "date"},
    "not": {"type": "string", "maxLength": 6, "not": {"pattern": "e"}},
    "names": {"type": "object", "patternProperties": {"^[xy]$": {"type": "null"}}, "additionalProperties": False},
    "if": {
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "type": "object",
        "propertyNames": {"enum": ["a", "b"]},
    },
}
LARK = 'start: item ("," item)*\nitem: /[a-c]{1,3}/ | "(" start ")"\n'
GBNF = 'root ::= "yes" | "no" | [0-9]+ "." root\n'
QUOTING = 'start: "who: " quote(passage)\n'
TOOL = {
    "type": "function",
    "function": {"name": "remember", "description": "Keep a note.", "parameters": {"type": "object", **ORDER}},
}


def digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:12]


def brief(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[:60]}... {len(text)} characters, {digest(text)}"


def refused(error: Exception) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": brief(str(error))}


# Calls: any model, guide, search and options, drawn by the number of the call.

NETWORKS = ("llama", "gpt2", "mistral", "qwen3", "bloom", "mamba", "recurrent_gemma", "t5", "bart")
MODELS = ("small", "small", "function", "some", "ziplm", *NETWORKS, "uncached")
OPTIONS: tuple[dict[str, Any], ...] = (
    *({"include": "an"}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 3}, {"min_tokens": 4}),
    *({"frequency_penalty": 0.5, "presence_penalty": 0.5}, {"logit_bias": {40: 2.0, 50: -3.0}}, {"heal": False}),
    {"draft": False},
)
STOPS: tuple[dict[str, Any], ...] = ({"stop": ["e"]}, {"stop_ids": [60, 70]})


@cache
def model_of(name: str) -> Any:
    import numpy as np
    from architectures import network_of, tokenizer_of
    from trellm import Vocabulary, models

    def logits(ids: Sequence[int]) -> Any:
        return np.random.default_rng(zlib.crc32(bytes(id % 256 for id in ids[-3:]))).normal(0, 3, 257)

    def some_logits(ids: Sequence[int], tokens: Sequence[int]) -> Any:
        return logits(ids)[list(tokens)]

    if name == "small":
        return models.small()
    if name in ("function", "some"):
        some = some_logits if name == "some" else None
        return models.from_function(logits, Vocabulary.from_bytes(), some_logits=some)
    if name == "ziplm":
        return models.ziplm(PASSAGE)
    import torch

    network = network_of("llama" if name == "uncached" else name, 32, torch.float32)
    return models.transformers(network, tokenizer_of(), cache=name != "uncached")


@cache
def generators() -> dict[str, Callable[[Any], Any]]:
    import datetime
    import re as re_module

    from interegular import parse_pattern
    from trellm import AllOf, Gap, Phrase, Template, generate, guides

    def tagged(model: Any) -> Any:
        inner = guides.RegexGuide("[0-9]{2}", model.vocabulary)
        return generate.Generator(model, guides.TaggedGuide([("<", inner, ">")], model.vocabulary, least=1, most=2))

    def goals(model: Any) -> Any:
        wanted = AllOf(Phrase("on", word=True), Template("a", Gap(max_chars=3), "b"))
        return generate.Generator(model, guides.GoalGuide(guides.FreeGuide(model.vocabulary), wanted))

    found: dict[str, Callable[[Any], Any]] = {
        "text": generate.text,
        "digits": lambda model: generate.regex(model, r"\d{4}-\d\d|[a-f]+!"),
        "loop": lambda model: generate.regex(model, r"(ab|ba|c){2,}d"),
        "flags": lambda model: generate.regex(model, r"(?:KETTLE|copper)\s\w{1,5}\b", re_module.I),
        "ahead": lambda model: generate.regex(model, r"(?=.*e)[a-z]{3,9}"),
        "ecma": lambda model: generate.regex(model, r"^\d+(?:\.\d{2})?$", dialect="ecma"),
        "choice": lambda model: generate.choice(model, ["paid", "not paid", "unknown"]),
        "mapping": lambda model: generate.choice(model, {"yes": True, "no": False}),
        "date": lambda model: generate.format(model, datetime.date),
        "float": lambda model: generate.format(model, float),
        "fsm": lambda model: generate.fsm(model, parse_pattern("(a|bc)+[0-9]").to_fsm()),
        "lark": lambda model: generate.cfg(model, LARK),
        "gbnf": lambda model: generate.cfg(model, GBNF, syntax="gbnf"),
        "quoting": lambda model: generate.cfg(model, QUOTING, contexts={"passage": PASSAGE}),
        "extract": lambda model: generate.extract(model, PASSAGE, max_chars=30),
        "extract-none": lambda model: generate.extract(model, PASSAGE, boundary="character", none_text="none"),
        "after": lambda model: generate.regex(model, "[0-9]{3}", after="e", thinking=8),
        "tagged": tagged,
        "goals": goals,
        "written": lambda model: generate.json(model, ORDER, order="any", whitespace="any", escapes="any"),
    }
    for name, schema in SCHEMAS.items():
        found[f"json-{name}"] = partial(_json, schema=schema)
    return found


def _json(model: Any, schema: Any) -> Any:
    from trellm import generate

    return generate.json(model, schema, whitespace="compact")


@cache
def searches() -> dict[str, Any]:
    from trellm import SMC, Beam, Exact, Greedy, Importance, Sample

    drawn = [Sample(), Sample(temperature=0.6, top_k=8), Sample(top_p=0.8, n=2), Sample(min_p=0.05)]
    whole = [Exact(attempts=60, parallel=8), Importance(n=3), SMC(particles=4, n=2)]
    every = [Greedy(), Greedy(), *drawn, Beam(2), Beam(3, n=2, length_penalty=0.5), *whole]
    return {f"{number}-{type(search).__name__}": search for number, search in enumerate(every)}


@cache
def generator_of(model: str, guide: str) -> Any:
    return generators()[guide](model_of(model))


def calls(_: argparse.Namespace) -> Cases:
    for number in range(CALLS):
        pick = random.Random(f"call {number}")
        model, guide = MODELS[number % len(MODELS)], pick.choice([*generators(), "text", "text"])
        search, way = pick.choice(list(searches())), pick.choice(["run", "run", "stream", "submit"])
        possible = (*OPTIONS, *STOPS) if guide == "text" else OPTIONS
        options: dict[str, Any] = {} if pick.random() < 0.5 else dict(pick.choice(possible))
        options |= {"max_tokens": pick.choice([16, 40, 60]), "seed": number, "search": search}
        if way == "stream" and searches()[search].n != 1:
            way = "run"
        ends = [pick.randrange(1, len(PASSAGE)) for _ in range(pick.choice([1, 1, 2, 4]))]
        prompts: list[Any] = [PASSAGE[:end] for end in ends]
        if model == "small" and pick.random() < 0.3:
            prompts = [[{"role": "user", "content": f"{prompt}\n\nWho bought what?"}] for prompt in prompts]
        said = ", ".join(f"{name}={value}" for name, value in options.items())
        key = f"{number} {model} {guide} {way} of {len(prompts)}: {said}"
        yield key, partial(called, model, guide, way, prompts, options)


def called(model: str, guide: str, way: str, prompts: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from trellm import Engine

    try:
        generator = generator_of(model, guide)
        given = {**options, "search": searches()[options["search"]]}
        if way == "stream":
            pieces = list(generator.stream(prompts, **given))
            parts: dict[int, str] = {}
            for piece in pieces:
                parts[piece.prompt] = parts.get(piece.prompt, "") + piece.text
            results = {piece.prompt: piece.result for piece in pieces if piece.result is not None}
            found = [results[number] for number in sorted(results)]
            streamed = [parts[number] for number in sorted(parts)]
            assert streamed == [result.text for result in found], (streamed, found)
        elif way == "submit":
            found = Engine(model_of(model)).submit(generator, prompts, **given).result()
        else:
            found = generator.run(prompts, **given)
    except Exception as error:
        return refused(error)
    flat = [each for one in found for each in (one if isinstance(one, list) else [one])]
    rows = [[*result.token_ids, result.finish_reason, digest(repr(result.value))] for result in flat]
    return {"tokens": rows}


def near_tie(key: str, before: Mapping[str, Any], work: Any) -> bool:
    """True where a greedy call comes to other tokens first where two were about as likely."""
    model, guide, _, prompts, options = work.args
    if "Greedy" not in key or "tokens" not in before:
        return False
    given = {**options, "search": searches()[options["search"]]}
    for row, result in zip(before["tokens"], generator_of(model, guide).run(prompts, **given, logprobs=2), strict=True):
        pairs = enumerate(zip(row[:-2], result.token_ids, strict=False))
        place = next((place for place, (old, new) in pairs if old != new), None)
        if place is not None:
            top = result.top_logprobs[place]
            if len(top) < 2 or top[0].logprob - top[1].logprob > NEAR:
                return False
        elif row[:-2] != [*result.token_ids]:
            return False
    return True


# Masks: of each schema the first, and all along its instances.


def masks(options: argparse.Namespace) -> Cases:
    if not (options.tokenizer and options.schemas):
        return
    from transformers import AutoTokenizer
    from trellm import Vocabulary

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    with gzip.open(options.schemas, "rt", encoding="utf-8") as file:
        records = sorted(map(json.loads, file), key=lambda record: record["id"])
    if options.sample:
        records = sorted(random.Random(0).sample(records, options.sample), key=lambda record: record["id"])
    for record in records:
        yield record["id"], partial(masked, record, tokenizer, vocabulary)


def masked(record: Mapping[str, Any], tokenizer: Any, vocabulary: Any) -> dict[str, Any]:
    from trellm.guides import JSONGuide

    try:
        guide = JSONGuide(record["schema"], vocabulary)
        first = digest(guide.mask(guide.start).tobytes())
        walks = [walked(guide, test["data"], tokenizer) for test in record["tests"]]
    except Exception as error:
        return refused(error)
    return {"first": first, "walks": walks}


def walked(guide: Any, data: Any, tokenizer: Any) -> list[Any]:
    """Count of an instance's tokens that are allowed, acceptance behind them, and the hash of all masks before them."""
    masks, state, count = hashlib.sha256(), guide.start, 0
    for token in tokenizer.encode(json.dumps(data, ensure_ascii=False), add_special_tokens=False):
        mask = guide.mask(state)
        masks.update(mask.tobytes())
        if not int(mask[token // 32]) >> token % 32 & 1:
            break
        state, count = guide.advance(state, token), count + 1
    return [count, guide.is_accepting(state), masks.hexdigest()[:12]]


# Requests: to a server of the small model.

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    *({}, {"regex": r"\d\d:\d\d"}, {"guided_choice": ["paid", "not paid"]}, {"ebnf": GBNF}, {"grammar": LARK}),
    *({"response_format": {"type": "json_object"}}, {"json_schema": SCHEMAS["either"]}),
    {"response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER}}},
    *({"structured_outputs": {"json": SCHEMAS["unique"]}}, {"trellm": {"include": ["kettle"]}}),
    *({"trellm": {"extract": {"context": PASSAGE}}}, {"guided_json": ORDER, "trellm": {"json": {"order": "any"}}}),
    {"response_format": {"type": "structural_tag", "structures": [
        {"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}], "triggers": ["<n>"]}},
)  # fmt: skip
ASKED: tuple[dict[str, Any], ...] = (
    *({"temperature": 0.8, "seed": 7}, {"temperature": 0.8, "seed": 7, "n": 2}, {"temperature": 0, "stop": ["."]}),
    *({"temperature": 1, "seed": 3, "top_k": 5, "top_p": 0.9}, {"temperature": 0, "repetition_penalty": 1.2}),
    *({"temperature": 0, "trellm": {"beams": 3}}, {"temperature": 0, "trellm": {"trace": True}}),
    {"temperature": 0, "frequency_penalty": 0.5, "logit_bias": {"50": -5}},
)
MISTAKES: tuple[dict[str, Any], ...] = (
    *({"model": "other"}, {"temperature": "hot"}, {"unknown": 1}, {"max_tokens": 0}, {"regex": "(", "temperature": 0}),
    *({"json_schema": {"type": "strange"}}, {"grammar": "start: ("}, {"regex": "a", "guided_choice": ["b"]}),
    *({"regex": "[a-z]{500}", "max_tokens": 3}, {"n": 1000}, {"top_p": 2}, {"stop": [1]}, {"logit_bias": {"x": 1}}),
    *({"json_schema": False}, {"trellm": {"include": []}}, {"stream_options": {"include_usage": True}}),
)


def bodies() -> Iterator[tuple[str, str, Any]]:
    """Method, path and body of all requests."""
    for path in ("/v1/models", "/v1/models/small", "/v1/models/x", "/health", "/health/ready", "/none", "/"):
        yield "GET", path, None
    for body in (b"{", b"[]", b'"\\ud800"', b"{}"):
        yield "POST", CHAT, body
    yield "DELETE", CHAT, None
    yield "POST", "/tokenize", {"prompt": PASSAGE}
    yield "POST", "/tokenize", {"messages": [{"role": "user", "content": "Hello"}]}
    for constraint in CONSTRAINTS[1:]:
        yield "POST", "/constraint", {"model": "small", **constraint}
    base: dict[str, Any] = {"model": "small", "max_tokens": 60, "temperature": 0}
    chat = {**base, "messages": [{"role": "user", "content": f"{PASSAGE}\n\nWho bought it? Quote the text."}]}
    text = {**base, "prompt": PASSAGE[:60]}
    for constraint in CONSTRAINTS:
        yield "POST", CHAT, {**chat, **constraint}
        yield "POST", CHAT, {**chat, **constraint, "stream": True}
        yield "POST", TEXT, {**text, **constraint, "stream": "regex" in constraint}
    for asked in ASKED:
        yield "POST", TEXT, {**text, "max_tokens": 12, **asked}
    yield "POST", TEXT, {**text, "max_tokens": 8, "logprobs": 2}
    yield "POST", TEXT, {**text, "max_tokens": 8, "prompt": [PASSAGE[:20], PASSAGE[:30]], "echo": True}
    yield "POST", CHAT, {**chat, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
    for tools in ({"tool_choice": "required"}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        for stream in (False, True):
            yield "POST", CHAT, {**chat, "max_tokens": 120, "tools": [TOOL], **tools, "stream": stream}
    schema = {"format": {"type": "json_schema", "name": "order", "schema": ORDER}}
    answer = {"model": "small", "max_output_tokens": 60, "temperature": 0, "input": f"{PASSAGE}\n\nWho bought it?"}
    for more in ({}, {"text": schema}, {"instructions": "Be brief."}, {"previous_response_id": "resp_1"}):
        yield "POST", RESPONSES, {**answer, **more}
        yield "POST", RESPONSES, {**answer, **more, "stream": True}
    for mistake in MISTAKES:
        yield "POST", TEXT, {**text, **mistake}


def requests(_: argparse.Namespace) -> Cases:
    server: list[Any] = []
    try:
        for number, (method, path, body) in enumerate(bodies()):
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            yield f"{number} {method} {path} {digest(data)}", partial(requested, server, method, path, data)
    finally:
        for process, _ in server:
            process.terminate()
            process.wait()


def requested(server: list[Any], method: str, path: str, data: bytes | None) -> dict[str, Any]:
    if not server:
        server.append(served())
    connection = http.client.HTTPConnection("127.0.0.1", server[0][1], timeout=300)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    kind, text = answer.getheader("Content-Type", ""), answer.read().decode()
    connection.close()
    if kind.startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        return {"status": answer.status, "events": put_together(events)}
    if not kind.startswith("application/json"):
        return {"status": answer.status, "type": kind, "text": brief(text)}
    found = plain(json.loads(text))
    error = found.get("error") or {}
    words = [error.pop(name) for name in ("message", "reason") if name in error]
    return {"status": answer.status, "body": found, "message": "; ".join(words)}


def served() -> tuple[subprocess.Popen[str], int]:
    """A server on a port of its own, and that port."""
    command = [sys.executable, "-P", "-m", "trellm", "serve", "--port", "0", "--compile-seconds", "300"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, bufsize=1)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
            return process, int(found[1])
    raise SystemExit("the server did not start")


TIMES = {"created", "created_at", "completed_at", "sequence_number", "cached_tokens", "obfuscation"}
"""Fields whose values are those of a moment: times, places in a stream, what was in memory."""


def plain(value: Any) -> Any:
    """JSON without what is different every time, floats in two digits, long texts by their hashes."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in TIMES}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, str):
        return brief(re.sub(r"\b(chatcmpl|cmpl|resp|msg|call|fc|rs|item|req)[-_][0-9A-Za-z]{8,}", r"\1", value))
    return value


def put_together(events: Sequence[str]) -> dict[str, Any]:
    """Values of a stream at each place of its events: texts joined, and of others those that follow another."""
    found: dict[str, list[Any]] = {}

    def visit(place: str, value: Any) -> None:
        if isinstance(value, dict | list):
            for name, each in value.items() if isinstance(value, dict) else enumerate(value):
                visit(f"{place}/{name}", each)
            return
        seen = found.setdefault(place, [])
        if seen and isinstance(value, str) and place.endswith(("/content", "/text", "/delta", "/arguments")):
            seen[-1] = f"{seen[-1] or ''}{value}"
        elif not seen or seen[-1] != value:
            seen.append(value)

    for event in events:
        value = plain(json.loads(event)) if event.startswith("{") else event
        visit(value.get("type", "") if isinstance(value, dict) else "", value)
    return plain(found)


# Commands: run in a folder of their own.

SCHEMA, GRAMMAR, FROM = ("--schema", "order.json"), ("--grammar", "list.lark"), ("--extract", "passage.txt")
PROMPT = ("-p", PASSAGE[:60], "--max-tokens", "60")
FILES = {
    "order.json": json.dumps(ORDER),
    "list.lark": LARK,
    "answer.gbnf": GBNF,
    "passage.txt": PASSAGE,
    "instance.json": '{ "paid":false, "count": 7,\n"buyer": "Ann"}',
    "prompts.txt": '"On 3 March 2021, "\n{"prompt": "The bill of ", "id": 7}\n',
    "numbers.json": json.dumps(SCHEMAS["numbers"]),
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    (), ("--help",), ("generate", "--help"), ("check", "--help"), ("explain", "--help"), ("serve", "--help"),
    ("warmup", "--help"), ("demo",), ("nothing",), ("check",), ("check", "-r", "("),
    ("check", "-r", r"\d{4}", "-t", "2024"), ("check", "-r", "[0-9]{4}-[0-9]{2}", "-t", "2024/05"),
    ("check", "-c", "yes", "-c", "no", "-t", "no"), ("check", "--format", "date", "-t", "2023-02-29"),
    ("check", "-r", "AB", "--flags", "i", "-t", "ab"), ("check", "-r", r"\cJ", "--dialect", "ecma", "-t", "a"),
    ("check", *SCHEMA, "--json", "instance.json"), ("check", *SCHEMA, "--file", "instance.json"),
    ("check", *SCHEMA, "-t", '{"buyer": "Ann", "count": 70, "paid": true}'), ("check", *SCHEMA, "-t", "[]"),
    ("check", *GRAMMAR, "-t", "a,(b,c)"), ("check", *GRAMMAR, "-t", "a,(b,d)"),
    ("check", "--grammar", "answer.gbnf", "--syntax", "gbnf", "-t", "1.no"),
    ("check", *FROM, "-t", "copper kettle"), ("check", *FROM, "-t", "tin kettle"),
    ("check", "-r", "1", *SCHEMA, "-t", "1"), ("explain",), ("explain", "-r", "([0-9]+)?[.][0-9]+"),
    ("explain", "-r", "ab+", "--state", "1", "--tokenizer", "tokenizer"), ("explain", "-r", "ab", "--after", "b"),
    ("explain", *SCHEMA), ("explain", *SCHEMA, "--keywords"), ("explain", *SCHEMA, "--after", '{"buyer"'),
    ("explain", *GRAMMAR), ("explain", *GRAMMAR, "--after", "(a"), ("explain", "--schema", "numbers.json"),
    ("explain", "-r", "a{200}"), ("explain", "--pydantic", "datetime:date"), ("explain", "-c", "yes", "-c", "no"),
    ("generate", *PROMPT), ("generate", *PROMPT, *SCHEMA),
    ("generate", *PROMPT, *GRAMMAR, "--seed", "1", "--top-k", "4"),
    ("generate", *PROMPT, *FROM), ("generate", *PROMPT, "-r", "[a-z]{4,9}", "--beams", "3"),
    ("generate", *PROMPT, "-c", "yes", "-c", "no", "--search", "exact", "--seed", "2"),
    ("generate", "--prompts", "prompts.txt", "-o", "-", "--max-tokens", "16", "--include", "kettle"),
    ("generate", "--prompts", "prompts.txt", "-o", "-", *SCHEMA, "-n", "2", "--temperature", "0.7", "--seed", "5"),
    ("generate", *PROMPT, "--model", "ziplm:passage.txt", "-r", "[0-9]{2}"), ("generate", *PROMPT, "--beams", "0"),
)  # fmt: skip


def commands(_: argparse.Namespace) -> Cases:
    from architectures import tokenizer_of

    with tempfile.TemporaryDirectory() as folder:
        for name, content in FILES.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        tokenizer_of().save_pretrained(f"{folder}/tokenizer")
        for number, command in enumerate(COMMANDS):
            yield f"{number} {brief(' '.join(command))}", partial(commanded, command, folder)


def commanded(command: Sequence[str], folder: str) -> dict[str, Any]:
    from trellm.cli import main as trellm

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(folder):
        code = trellm(list(command))
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    lines = [line for line in said[1].splitlines() if line.startswith("trellm: ") and "compiling" not in line]
    timeless = re.sub(r"\d[\d.]* s\b", "... s", said[0])
    return {"code": code, "out": brief(timeless), "message": brief("\n".join(lines))}


# Recording and comparing.

KINDS: dict[str, Callable[[argparse.Namespace], Cases]] = {
    "calls": calls,
    "masks": masks,
    "requests": requests,
    "commands": commands,
}


def lines_of(file: Path) -> dict[str, Any]:
    """Lines of a recording; a last one that was broken off is left out."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return dict(json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n"))


def record(kind: str, options: argparse.Namespace) -> int:
    file = Path(options.folder) / f"{kind}.jsonl"
    done = lines_of(file)
    file.write_text("".join(f"{json.dumps(each)}\n" for each in done.items()), encoding="utf-8")
    with file.open("a", encoding="utf-8") as out:
        for key, work in KINDS[kind](options):
            if key not in done:
                out.write(f"{json.dumps([key, work()])}\n")
                out.flush()
    print(f"{kind}: {len(lines_of(file))} recorded, of which {len(done)} before", flush=True)
    return 0


def compare(kind: str, options: argparse.Namespace) -> int:
    """Count of cases that differ."""
    before = lines_of(Path(options.folder) / f"{kind}.jsonl")
    count, words, near, wrong = 0, 0, 0, 0
    for key, work in KINDS[kind](options):
        if key not in before:
            continue
        count, old, new = count + 1, before.pop(key), json.loads(json.dumps(work()))
        differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if not differing:
            continue
        label = "differs"
        if differing == ["message"]:
            words, label = words + 1, "other words"
        elif kind == "calls" and near_tie(key, old, work):
            near, label = near + 1, "near tie"
        else:
            wrong += 1
        print(f"{kind}, {label}: {key}")
        for name in differing:
            print(f"  {name} was {json.dumps(old.get(name))}\n  {name} is  {json.dumps(new.get(name))}", flush=True)
    left = len(before)
    print(f"{kind}: {count} compared, {wrong} differ, {near} near ties, {words} in other words, {left} not run again")
    return wrong + left


def run(name: str, kind: str, options: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)
    return {"record": record, "compare": compare}[name](kind, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subparsers = parser.add_subparsers(dest="action", required=True)
    for name in ("record", "compare"):
        subparser = subparsers.add_parser(name)
        subparser.add_argument("folder", help="where the recording is")
        subparser.add_argument("--tokenizer", help="a folder with a tokenizer, for masks")
        subparser.add_argument("--schemas", help="a .jsonl.gz of schemas with their instances, for masks")
        subparser.add_argument("--sample", type=int, default=0, help="only so many schemas, drawn by a fixed seed")
        subparser.add_argument("--only", choices=KINDS, help="one kind")
    options = parser.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    kinds = [options.only] if options.only else list(KINDS)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = list(pool.map(partial(run, options.action, options=options), kinds))
    sys.exit(1 if any(found) else 0)


if __name__ == "__main__":
    main()
