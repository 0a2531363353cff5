"""What is counted: in the usage of answers, and for Prometheus."""

import logging
import re
import secrets
from pathlib import Path

import pytest
import trellm
from trellm import models
from trellm.serve import tool_calls

from .conftest import Running, until


def counted(server: Running) -> dict[str, float]:
    """All samples by name and labels."""
    text = server.http.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_tokens_that_were_in_memory(server: Running) -> None:
    prompt = " ".join(f"word {secrets.token_hex(2)}" for _ in range(12))
    body = {"model": "small", "prompt": prompt, "max_tokens": 2}
    before = counted(server)['trellm_prompt_tokens_found_total{model_name="small"}']
    first, again = (server.post("/v1/completions", body).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    found = again["prompt_tokens_details"]["cached_tokens"]
    assert found % 16 == 0 and again["prompt_tokens"] - 16 - 16 < found < again["prompt_tokens"]
    assert counted(server)['trellm_prompt_tokens_found_total{model_name="small"}'] - before == found
    several = server.post("/v1/completions", {**body, "prompt": [f"{prompt} new", f"{prompt} new"], "n": 2}).json()
    assert several["usage"]["prompt_tokens_details"]["cached_tokens"] <= several["usage"]["prompt_tokens"]
    # Of two texts of one prompt that nobody has read the second finds what the first reads.
    fresh = server.post("/v1/completions", {**body, "prompt": f"{secrets.token_hex(16)} {prompt}", "n": 2}).json()
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_the_page_names_metrics_that_there_are(server: Running) -> None:
    page = (Path(trellm.__file__).parent / "docs" / "serve.md").read_text(encoding="utf-8")
    named, served = set(re.findall(r"`(trellm_\w+)`", page)), server.http.get("/metrics").text
    assert len(named) > 12
    assert [name for name in named if not re.search(rf"^# TYPE {name} ", served, re.M)] == []


def test_salts_keep_apart_what_was_read(server: Running) -> None:
    prompt = " ".join(f"word {secrets.token_hex(2)}" for _ in range(12))
    asked = {
        "/v1/completions": {"prompt": prompt, "max_tokens": 1},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": prompt}], "max_tokens": 1},
        "/v1/responses": {"input": prompt, "max_output_tokens": 1},
        "/v1/embeddings": {"input": prompt},
    }

    def found(path: str, **salt: str) -> int:
        usage = server.post(path, {"model": "small", **asked[path], **salt}).json()["usage"]
        return (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]

    assert found("/v1/completions") == 0
    assert found("/v1/embeddings") > 0, "which begins with the same text"
    assert found("/v1/chat/completions") == 0
    assert found("/v1/responses") > 0, "which is the same chat"
    for salt in ("one", "two"):
        first, second = [[found(path, cache_salt=salt) for path in asked] for _ in range(2)]
        assert first[0] == first[1] == 0 and min(second) > 0
    assert (
        "cache_salt" in server.error("/v1/completions", {"model": "small", "prompt": "a", "cache_salt": ""})["message"]
    )


def test_tokens_that_were_in_memory_of_responses(server: Running) -> None:
    said = " ".join(f"word {secrets.token_hex(2)}" for _ in range(12))
    body = {"model": "small", "input": said, "max_output_tokens": 2}
    first, again = (server.post("/v1/responses", body).json()["usage"]["input_tokens_details"] for _ in range(2))
    assert first["cached_tokens"] < again["cached_tokens"]


def test_reasoning_tokens() -> None:
    """Those of thinking with its end, however the stream is split; none of an answer without."""
    model = models.ziplm("Call a tool.")
    form = tool_calls.ToolCallFormat(tool_calls.FORMATS["hermes"], None, model.vocabulary, thinks=True)
    ids = list(model.tokenizer.encode("<think>\nLet me see.\n</think>\n\nIt rains."))
    plan = form.plan(thinking="on")
    whole, split = plan.reader(), plan.reader()
    whole.feed(ids)
    for token in ids:
        split.feed([token])
    for reader in (whole, split):
        reader.finish()
        assert reader.message.reasoning == "Let me see." and reader.message.content == "It rains."
        # Of a marker that is several tokens the last one says that it is one.
        assert reader.reasoning_tokens == len(list(model.tokenizer.encode(">\nLet me see.\n</think>")))
    plain = form.plan(thinking="off").reader()
    plain.feed(list(model.tokenizer.encode("It rains.")))
    assert plain.reasoning_tokens == 0


def test_reasoning_tokens_of_harmony() -> None:
    model = models.ziplm("Call a tool.")
    plan = tool_calls.ToolCallFormat(tool_calls.FORMATS["harmony"], None, model.vocabulary, thinks=True).plan()
    reader = plan.reader()
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It rains."
    reader.feed(list(model.tokenizer.encode(text)))
    reader.finish()
    assert (reader.message.reasoning, reader.message.content) == ("Hm.", "It rains.")
    assert reader.reasoning_tokens == len(list(model.tokenizer.encode(">Hm.<|end|>")))


def test_reasoning_tokens_of_an_answer(server: Running) -> None:
    """Whole and streamed, of chats and responses, where the model thinks."""
    service = server.service
    usual = service.tool_format
    service.tool_format = tool_calls.ToolCallFormat(
        tool_calls.FORMATS["hermes"], service.model.tokenizer, service.model.vocabulary, thinks=True
    )
    try:
        ours = {"thinking": "on", "thinking_budget": 8}
        chat = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "trellm": ours}
        usage = server.post("/v1/chat/completions", chat).json()["usage"]
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < thought <= usage["completion_tokens"]
        counting = {**chat, "stream_options": {"include_usage": True}}
        streamed = server.events("/v1/chat/completions", counting)[-1]["usage"]
        assert 0 < streamed["completion_tokens_details"]["reasoning_tokens"] <= streamed["completion_tokens"]
        body = {"model": "small", "input": "Hi", "max_output_tokens": 40, "trellm": ours}
        usage = server.post("/v1/responses", body).json()["usage"]
        assert 0 < usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    finally:
        service.tool_format = usual
    plain = server.post("/v1/chat/completions", {**chat, "trellm": {}}).json()["usage"]
    assert plain["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_everything_is_observed(server: Running) -> None:
    before = counted(server)
    server.post(
        "/v1/completions",
        {"model": "small", "prompt": "a b " * 40, "max_tokens": 30, "regex": f"{secrets.token_hex(4)}|[abc]{{3}}"},
    )
    server.error("/v1/completions", {"model": "small", "prompt": "a", "regex": "("})
    server.error("/v1/completions", {"model": "other", "prompt": "a"}, 404)
    after = counted(server)
    grown = {name for name, value in after.items() if value > before.get(name, 0)}
    for name in ("queue", "compile", "compile_wait", "step", "request", "mask"):
        family = f"trellm_{name}_seconds_count"
        assert family + ("" if name == "mask" else '{model_name="small"}') in grown, name
    assert {'trellm_errors_total{code="invalid_regex"}', 'trellm_errors_total{code="model_not_found"}'} <= grown
    assert after['trellm_queue{model_name="small"}'] == 0
    states = ("held", "kept", "room", "weights")
    held, kept, room, weights = (after[f'trellm_memory_bytes{{model_name="small",state="{each}"}}'] for each in states)
    assert 0 <= held + kept <= room and kept > 0 and weights > 0
    names = set(re.findall(r"^# TYPE (\w+)", server.http.get("/metrics").text, re.M))
    assert {"trellm_prompt_tokens_found_total", "trellm_reasoning_tokens_total"} <= names


def test_requests_are_logged_where_that_is_asked_for(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, the status and the time; nothing of what was said."""
    access = logging.getLogger("trellm.serve.access")
    assert not access.isEnabledFor(logging.INFO)

    def logged(pattern: str) -> bool:
        """Tell whether such a line is there; an earlier test's request may be written down behind it."""
        said = [each.getMessage() for each in caplog.records if each.name == access.name]
        assert not [line for line in said if "nothing" in line or "secret" in line]
        return any(re.fullmatch(pattern, line) for line in said)

    with caplog.at_level("INFO", logger=access.name):
        server.text("nothing of this", max_tokens=1)
        server.http.get("/not%0Athere?secret=1")
        until(lambda: logged(r'127\.0\.0\.1 "POST /v1/completions" 200 [0-9.]+ ms'))
        until(lambda: logged(r'127\.0\.0\.1 "GET /not%0Athere" 404 [0-9.]+ ms'))
