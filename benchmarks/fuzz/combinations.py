"""A soak of the server: everything that a chat may ask for at once, each answer compared with the same request's alone.

    python benchmarks/fuzz/combinations.py [--requests 1000] [--parts 20] [--callers 16] [--seed 0] [--log FILE]
        [--save]

Two models: the weights of the small model, and a random Llama of its vocabulary, in float64, so that batches of other
sizes draw the same tokens. Their templates make them think, and write calls as Hermes models and Qwen3-Coder do. Two
servers have both: one gets random chats from many callers, the other the same chats one after another. A chat has
tools or not, of strict schemas or loose ones, chosen by the model, required or named, in parallel or not; a format (a
schema, any JSON, a pattern, choices) or none; thinking as the template has it, off, or with a budget; stop strings, n,
log-probabilities, a temperature and a seed; it is streamed or whole, and one stream in ten is left before its end. The
busy server reads guesses of how texts go on at random, whatever they cost, and says how many it has read; the other
reads none.

different: answers that are not those of the request alone, letter for letter, or log-probabilities more than 0.001 away
invalid: calls and answers under a format that do not keep to their schemas, as jsonschema judges, where they are not
cut; refused: requests that both servers refuse alike. Exits with 1 if anything was different, invalid or failed.
Nothing depends on speed, and no request is given up. Each part has a seed of its own, from --seed on; with --save its
row is added to the results as soon as it is done, so that what is broken off loses one part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recording import add, show
from serving_process import ours, started

_CHAT = (
    "{% if tools %}<|im_start|>system\nTools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    "{# <think> </think> "
)
TEMPLATES = {
    "small-hermes": _CHAT + '<tool_call>\n{"name": "arguments"}\n</tool_call> #}',
    "random-llama-qwen3-coder": _CHAT
    + "<tool_call>\n<function=name>\n<parameter=name>\nvalue\n</parameter>\n</function>\n</tool_call> #}",
}
TEXT: dict[str, Any] = {"type": "string", "maxLength": 12}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"city": TEXT}, "required": ["city"], "additionalProperties": False},
    {
        "type": "object",
        "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["tea", "coffee"]}},
        "required": ["count", "kind"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"names": {"type": "array", "items": TEXT, "maxItems": 3}, "exact": {"type": "boolean"}},
        "required": ["names", "exact"],
        "additionalProperties": False,
    },
]
NAMES = ["find", "order", "list_names"]
PATTERN, CHOICES = "[A-Z][a-z]{2,8}( [a-z]{2,6}){0,2}", ["red", "green", "dark green"]
WORDS = ["kettle", "river", "copper", "train", "letter", "garden", "winter", "ticket", "lamp", "paid"]
LEFT = "left"
GUESSED = 0.7
"""The share of guesses that the busy server reads."""


def folders(home: Path) -> dict[str, Path]:
    """The models, saved."""
    import torch
    import transformers
    from trellm import models

    small: Any = models.small()
    found: dict[str, Path] = {}
    for number, (name, template) in enumerate(TEMPLATES.items()):
        found[name] = home / str(number)
        small.tokenizer.chat_template = template
        small.tokenizer.save_pretrained(found[name])
        if number == 0:
            small.model.save_pretrained(found[name])
            continue
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=small.model.config.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
            eos_token_id=small.model.config.eos_token_id, bos_token_id=None,
        )  # fmt: skip
        transformers.LlamaForCausalLM(config).save_pretrained(found[name])
    return found


def server(models: Mapping[str, Path], share: float) -> tuple[str, str, list[str], int, Mapping[str, str]]:
    """This file as a server of models by name, which reads such a share of its guesses."""
    name, model, command, port, environment = ours(None)
    named = [f"{each}={folder}" for each, folder in models.items()]
    options = ["serve", *named, "--dtype", "float64", *command[command.index("--port") : command.index("--name")]]
    return name, model, [sys.executable, __file__, "--guesses", str(share), *options], port, environment


def serve(share: float, arguments: Sequence[str]) -> None:
    """`trellm serve`, with guesses read at random; how many there were stands in the metrics."""
    from prometheus_client import Counter as Metric
    from trellm.cli import main
    from trellm.engine.drafts import ForwardCosts, StepDrafts
    from trellm.serve.telemetry import Metrics

    drawn, count = random.Random(0), Metric("trellm_guesses", "Guesses that were read", registry=None)
    made, read = Metrics.__init__, StepDrafts.read

    def counted(self: Any, *rest: Any) -> Any:
        count.inc(self.count)
        return read(self, *rest)

    def begin(self: Any) -> None:
        made(self)
        self._registry.register(count)

    with (
        patch.object(ForwardCosts, "pays", lambda self, *rest: drawn.random() < share),
        patch.object(StepDrafts, "read", counted),
        patch.object(Metrics, "__init__", begin),
    ):
        sys.exit(main(list(arguments)))


def chat(drawn: random.Random) -> dict[str, Any]:
    """A random request."""
    words = ", ".join(drawn.choices(WORDS, k=drawn.randint(1, 30)))
    body: dict[str, Any] = {
        "model": drawn.choice(list(TEMPLATES)),
        "messages": [{"role": "user", "content": f"Write of {words}."}],
        "max_tokens": drawn.choice([20, 60, 60, 90]),
        "temperature": drawn.choice([0, 0, 0.7, 1.3]),
        "seed": drawn.randrange(1000),
        "stream": drawn.random() < 0.5,
        "n": drawn.choice([1, 1, 1, 2, 3]),
    }
    if drawn.random() < 0.5:
        several = drawn.sample(range(3), drawn.randint(1, 3))
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": NAMES[i], "parameters": SCHEMAS[i], "strict": drawn.random() < 0.5},
            }
            for i in several
        ]
        named = {"type": "function", "function": {"name": NAMES[several[0]]}}
        body["tool_choice"] = drawn.choice(["auto", "auto", "required", "none", named])
        body["parallel_tool_calls"] = drawn.random() < 0.5
    match drawn.choice(["", "", "schema", "schema", "object", "regex", "choice"]):
        case "schema":
            form = {"name": "a", "schema": drawn.choice(SCHEMAS), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case "object":
            body["response_format"] = {"type": "json_object"}
        case "regex":
            body["structured_outputs"] = {"regex": PATTERN}
        case "choice":
            body["structured_outputs"] = {"choice": CHOICES}
        case _:
            if drawn.random() < 0.4:
                body["stop"] = drawn.choice([[" the"], ["a", "e"], ["\n"]])
    match drawn.choice(["", "off", "budget", "effort"]):
        case "off":
            body["chat_template_kwargs"] = {"enable_thinking": False}
        case "budget":
            body["trellm"] = {"thinking": "on", "thinking_budget": drawn.randint(1, 24)}
        case "effort":
            body["reasoning_effort"] = drawn.choice(["none", "minimal", "low"])
        case _:
            pass
    if drawn.random() < 0.4:
        body |= {"logprobs": True, "top_logprobs": drawn.randint(0, 3)}
    return body


def added(found: dict[int, dict[str, Any]], choice: dict[str, Any]) -> None:
    """Put a piece of a stream to the answers."""
    own = found.setdefault(choice["index"], {"content": "", "reasoning": "", "calls": [], "finish": None, "scores": []})
    delta = choice["delta"]
    own["content"] += delta.get("content") or ""
    own["reasoning"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or ():
        if call["index"] == len(own["calls"]):
            own["calls"].append({"name": "", "arguments": ""})
        function = call["function"]
        own["calls"][call["index"]]["name"] += function.get("name") or ""
        own["calls"][call["index"]]["arguments"] += function.get("arguments") or ""
    own["finish"] = choice["finish_reason"] or own["finish"]
    own["scores"] += [(one["token"], one["logprob"]) for one in (choice.get("logprobs") or {}).get("content") or ()]


async def answered(http: Any, body: dict[str, Any], leaving: int | None = None) -> Any:
    """The answers of a request, by number, in one form whether it was streamed or not; or the code of its error."""
    found: dict[int, dict[str, Any]] = {}
    if not body["stream"]:
        answer = await http.post("/v1/chat/completions", json=body)
        if answer.status_code != 200:
            return answer.status_code, answer.json()["error"]["code"]
        for choice in answer.json()["choices"]:
            message = choice["message"]
            calls = [
                {"index": index, "function": call["function"]}
                for index, call in enumerate(message.get("tool_calls") or ())
            ]
            added(found, {**choice, "delta": {**message, "tool_calls": calls}})
        return found
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            return answer.status_code, json.loads(await answer.aread())["error"]["code"]
        events = 0
        async for line in answer.aiter_lines():
            if not line or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                return 200, event["error"]["code"]
            for choice in event["choices"]:
                added(found, choice)
            events += 1
            if leaving is not None and events > leaving:
                return LEFT
    return found


def differ(one: Any, other: Any) -> bool:
    """Tell whether two answers are not the same."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one != other
    if one.keys() != other.keys():
        return True
    for key, own in one.items():
        if any(own[name] != other[key][name] for name in own if name != "scores"):
            return True
        both = own["scores"], other[key]["scores"]
        if [token for token, _ in both[0]] != [token for token, _ in both[1]]:
            return True
        if any(abs(left - right) > 1e-3 for (_, left), (_, right) in zip(*both, strict=True)):
            return True
    return False


def invalid(body: dict[str, Any], answer: dict[int, dict[str, Any]]) -> str | None:
    """The fault of answers that break what was asked for, in words; None where they keep to it."""
    import jsonschema

    schemas = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", ())}
    form = body.get("response_format", {})
    for own in answer.values():
        cut = own["finish"] == "length"
        for number, call in enumerate(own["calls"]):
            if cut and number == len(own["calls"]) - 1:
                continue
            try:
                value = json.loads(call["arguments"])
                jsonschema.validate(value, schemas[call["name"]]["parameters"])
            except (ValueError, KeyError, jsonschema.ValidationError) as error:
                return f"call {call['name']}: {error}"
        if body.get("tool_choice") == "none" and own["calls"]:
            return "a call where there is to be none"
        if body.get("parallel_tool_calls") is False and len(own["calls"]) > 1:
            return "several calls where there is to be one"
        if body.get("tool_choice") == "required" and not own["calls"] and not cut:
            return "no call where one is required"
        if own["calls"] or cut:
            continue
        try:
            if form:
                value = json.loads(own["content"])
                jsonschema.validate(value, form.get("json_schema", {}).get("schema", {"type": "object"}))
            elif "structured_outputs" in body:
                asked = body["structured_outputs"]
                fits = own["content"] in CHOICES if "choice" in asked else re.fullmatch(PATTERN, own["content"])
                assert fits, "it does not match"
        except (ValueError, AssertionError, jsonschema.ValidationError) as error:
            return f"{own['content']!r}: {error}"
    return None


async def soak(busy: int, alone: int, seed: int, given: argparse.Namespace, log: Any) -> dict[str, Any]:
    """The random requests of a seed, by many callers and by one."""
    import httpx

    drawn = random.Random(seed)
    bodies = [chat(drawn) for _ in range(given.requests)]
    leaving = [drawn.randint(0, 6) if body["stream"] and drawn.random() < 0.1 else None for body in bodies]
    counts, found = Counter[str](), dict[int, Any]()
    left = iter(range(len(bodies)))
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{busy}", timeout=None, limits=limits) as many,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{alone}", timeout=None) as one,
    ):

        async def caller() -> None:
            for number in left:
                found[number] = await answered(many, bodies[number], leaving[number])

        guesses = await _guesses(many)
        begun = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(given.callers)))
        together = time.perf_counter() - begun
        begun = time.perf_counter()
        for number, body in enumerate(bodies):
            got = found[number]
            if got == LEFT:
                counts["left"] += 1
                continue
            other = await answered(one, body)
            kind = ""
            if not isinstance(got, dict):
                kind = "refused" if got[0] == 400 and got == other else "failed"
            elif differ(got, other):
                kind = "different"
            elif (fault := invalid(body, got)) is not None:
                kind, other = "invalid", fault
            counts[kind or "same"] += 1
            counts["calls"] += sum(len(own["calls"]) for own in got.values()) if isinstance(got, dict) else 0
            if kind in ("failed", "different", "invalid") and log is not None:
                log.write(json.dumps({"kind": kind, "body": body, "got": got, "other": other}) + "\n")
                log.flush()
        guesses = await _guesses(many) - guesses
    names = ("same", "refused", "left", "calls", "different", "invalid", "failed")
    return {
        "model": " and ".join(TEMPLATES), "seed": seed, "requests": len(bodies), "callers": given.callers,
        **{each: counts[each] for each in names},
        "guesses": guesses,
        "together_s": round(together), "alone_s": round(time.perf_counter() - begun),
    }  # fmt: skip


async def _guesses(http: Any) -> int:
    """Count of the guesses that a server has read so far."""
    lines = (await http.get("/metrics")).text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("trellm_guesses_total"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--guesses", type=float, help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.guesses is not None:
        serve(given.guesses, rest)
    if rest:
        parser.error(f"unknown: {' '.join(rest)}")
    log = None if given.log is None else given.log.open("w")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as home:
        models = folders(Path(home))
        with started(*server(models, GUESSED)) as busy, started(*server(models, 0.0)) as alone:
            for seed in range(given.seed, given.seed + given.parts):
                rows.append(asyncio.run(soak(busy.port, alone.port, seed, given, log)))
                show(rows[-1:])
                if given.save:
                    print(add("fuzz_combinations", rows[-1:], ("trellm", "torch", "numba", "transformers")), flush=True)
    sys.exit(any(row[each] for row in rows for each in ("different", "invalid", "failed")))


if __name__ == "__main__":
    main()
