"""Readers take whatever comes: of no stream they raise anything, and how it is split changes nothing."""

from __future__ import annotations

import json
from random import Random

import pytest
from trellm.serve import tool_calls

from .families import TOOLS, rendered, turns_of
from .models import TEXT, TOKENS, drawn, form_of, read

PIECES = ["{", "}", '"', "\\", "\n", " ", "a", "é", "[", "]", "</", ">", "<think>", "</think>", "now", "0", ": "]


@pytest.mark.parametrize("name", tool_calls.NAMES)
def test_broken_streams(name: str) -> None:
    """Texts of which pieces are missing, doubled or strange: read the same however they are split."""
    random, model = Random(11), TOKENS[name]
    plan = form_of(name, is_text=False, thinks=True).plan(tool_calls.tools_of(TOOLS))
    whole = [model.tokenizer.encode(rendered(name, turn), add_special_tokens=False) for turn in turns_of(name, "x")]
    for _ in range(20):
        tokens = [token for token in random.choice(whole) if token not in model.vocabulary.eos_ids]
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(tokens) + 1)
            inserted = random.choice([b"", random.choice(PIECES).encode(), bytes([random.randrange(256)])])
            tokens[at : at + random.choice([0, 0, 1, 5, 40])] = inserted
        if random.random() < 0.3 and tokens:
            tokens.insert(random.randrange(len(tokens)), random.choice([97, *model.tokenizer.markers.values()]))
        tokens = [token for token in tokens if token not in model.vocabulary.eos_ids]
        message = read(plan, tokens)
        for _ in range(3):
            assert read(plan, tokens, random) == message
        if tool_calls.FORMATS[name].frames and tool_calls.FORMATS[name].frames[0].parameters is not None:
            for call in message.calls:
                assert not call.complete or isinstance(json.loads(call.arguments), dict)


def test_a_call_that_is_cut_is_not_complete() -> None:
    plan = form_of("hermes").plan(tool_calls.tools_of(TOOLS))
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os'
    message = read(plan, TEXT.tokenizer.encode(text, add_special_tokens=False))
    assert message.calls == (tool_calls.ParsedCall("id", "get_weather", '{"city": "Os', False),)
    cut = read(plan, TEXT.tokenizer.encode("Hello <tool_", add_special_tokens=False))
    assert cut.content == "Hello <tool_"


def test_what_is_no_call_is_content() -> None:
    plan = form_of("hermes").plan(tool_calls.tools_of(TOOLS))
    for text in ('<tool_call>\n{"name": "never", "arguments": {}}\n</tool_call>', "a <tool_call> b", "<tool_call>"):
        message = read(plan, TEXT.tokenizer.encode(text, add_special_tokens=False), Random(1))
        assert (message.content, message.calls) == (text, ())


def test_an_id_that_never_ends_is_content() -> None:
    text = "[TOOL_CALLS]now[CALL_ID]abc"
    message = read(
        form_of("mistral-v11").plan(tool_calls.tools_of(TOOLS)), TEXT.tokenizer.encode(text, add_special_tokens=False)
    )
    assert (message.content, message.calls) == (text, ())


def test_deltas_come_as_soon_as_they_are_certain() -> None:
    reader = form_of("hermes").plan(tool_calls.tools_of(TOOLS)).reader(lambda: "call_1")
    steps: list[tuple[bytes, list[tool_calls.Delta]]] = [
        (b"Hi. <tool", [tool_calls.ContentDelta("Hi.")]),
        (b"box ", [tool_calls.ContentDelta(" <toolbox")]),
        (b'\n<tool_call>\n{"name": "now', []),
        (b'", "arguments": {', [tool_calls.CallDelta(0, "call_1", "now"), tool_calls.ArgumentsDelta(0, "{")]),
        (b'"a": "\xc3', [tool_calls.ArgumentsDelta(0, '"a": "')]),
        (b'\xa9"}', [tool_calls.ArgumentsDelta(0, 'é"}')]),
        (b"}\n</tool_call>", [tool_calls.CallEndDelta(0)]),
    ]
    for data, expected in steps:
        assert reader.feed_bytes(data) == expected
    assert reader.finish() == []
    assert reader.message == tool_calls.ParsedMessage(
        "Hi. <toolbox", None, (tool_calls.ParsedCall("call_1", "now", '{"a": "é"}', True),)
    )


def test_strings_that_are_written_as_they_are_become_json_as_they_come() -> None:
    reader = form_of("qwen3-coder").plan(tool_calls.tools_of(TOOLS)).reader()
    reader.feed_bytes(b"<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert reader.feed_bytes(b'a "b"\n</par') == [tool_calls.ArgumentsDelta(0, 'a \\"b\\"')]
    assert reader.feed_bytes(b"x\n") == [tool_calls.ArgumentsDelta(0, "\\n</parx")]
    assert reader.feed_bytes(b"\n</parameter>\n</function>\n</tool_call>") == [
        tool_calls.ArgumentsDelta(0, '\\n"}'),
        tool_calls.CallEndDelta(0),
    ]


def test_ids() -> None:
    lengths = {"hermes": 29, "mistral": 9}
    for name, length in lengths.items():
        plan = form_of(name).plan(tool_calls.tools_of(TOOLS))
        turn = turns_of(name, "x")[1]
        ids: set[str] = set()
        for _ in range(3):
            reader = plan.reader()
            reader.feed_bytes(rendered(name, turn).encode())
            reader.finish()
            ids.add(reader.message.calls[0].id)
        assert {len(each) for each in ids} == {length}
        assert len(ids) == 3


def test_ids_of_an_answer_differ() -> None:
    """Also where the model counts wrongly: results of calls are told apart by them."""
    call = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    text = f"<|tool_calls_section_begin|>{call}{call}<|tool_calls_section_end|>"
    plan = form_of("kimi-k2").plan(tool_calls.tools_of(TOOLS))
    message = read(plan, TEXT.tokenizer.encode(text, add_special_tokens=False))
    assert [call.id for call in message.calls] == ["functions.now:0", "id"]


@pytest.mark.parametrize("name", ["qwen3-coder", "minimax-m2", "deepseek-v3.2", "glm-4.7"])
def test_strings_of_json_may_contain_what_ends_a_value(name: str) -> None:
    """Within lists, and where one of several texts has it: whatever the guide allows is read as what it says."""
    end = tool_calls.FORMATS[name].frames[0].parameters.end  # type: ignore[union-attr]
    values = {"one": f'a"{end}', "several": [f"{end}\n{end}", "\\"]}
    schema = {"one": {"enum": ["b", values["one"]]}, "several": {"const": values["several"]}}
    function = {"name": "f", "parameters": {"type": "object", "properties": schema, "required": list(schema)}}
    form, random = form_of(name), Random(3)
    tools = tool_calls.tools_of([{"type": "function", "function": function}])
    plan = form.plan(tools, tool_calls.choice_of("required", tools), parallel=False)
    assert plan.guide is not None
    found: list[str] = []
    for _ in range(20):
        message = read(plan, drawn(plan.guide, random, 500), random)
        assert [call.complete for call in message.calls] == [True] and message.content is None
        arguments = json.loads(message.calls[0].arguments)
        assert arguments["several"] == values["several"]
        found.append(arguments["one"])
    assert set(found) == {"b", values["one"]}
