"""What a request makes of a form: which calls there may be, thinking, an answer that a schema asks for, budgets."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import Phrase
from trellm.errors import OptionError
from trellm.guides import GoalGuide, JSONGuide, SubstringGuide, laws
from trellm.serve import tool_calls

from .families import TOOLS, Turn, rendered
from .models import TEXT, TOKENS, accepts, drawn, form_of, read

LISTED = tool_calls.tools_of(TOOLS)
SCHEMAS = {tool.name: tool.parameters for tool in LISTED}
NO, ONE = Turn("Hello"), Turn("", (("now", {}),))
TWO = Turn("", (("now", {}), ("get_weather", {"city": "Oslo"})))
OTHER = Turn("", (("get_weather", {"city": "Oslo"}),))
MANY = sorted(set(tool_calls.NAMES) - {"small", "harmony"})


def tokens_of(text: str, model: Any = TEXT) -> list[int]:
    return model.tokenizer.encode(text, add_special_tokens=False)


def plan_of(name: str, choice: Any = "auto", **options: Any) -> tool_calls.AnswerPlan:
    return form_of(name).plan(LISTED, tool_calls.choice_of(choice, LISTED), **options)


def allowed(plan: tool_calls.AnswerPlan, name: str, *turns: Turn) -> list[bool]:
    """Which turns are texts of the guide, as the template writes them."""
    assert plan.guide is not None
    return [accepts(plan.guide, tokens_of(rendered(name, turn))) for turn in turns]


@pytest.mark.parametrize("name", tool_calls.NAMES)
def test_what_may_be_called(name: str) -> None:
    named = {"type": "function", "function": {"name": "now"}}
    some = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    for choice, expected in (
        ("auto", [True, True, True]),
        ("none", [True, False, False]),
        ("required", [False, True, True]),
        ("any", [False, True, True]),
        (named, [False, True, False]),
        (some, [True, True, False]),
    ):
        assert allowed(plan_of(name, choice), name, NO, ONE, OTHER) == expected, choice


@pytest.mark.parametrize("name", MANY)
def test_one_call_or_several(name: str) -> None:
    for choice in ("auto", "required"):
        assert allowed(plan_of(name, choice), name, ONE, TWO) == [True, True]
        assert allowed(plan_of(name, choice, parallel=False), name, ONE, TWO) == [True, False]


@pytest.mark.parametrize("name", tool_calls.NAMES)
def test_an_answer_that_a_schema_asks_for(name: str) -> None:
    answer = JSONGuide({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, TEXT.vocabulary)
    turns = Turn('{"n": 1}'), Turn('{"n": "1"}'), NO, ONE
    assert allowed(plan_of(name, answer=answer), name, *turns) == [True, False, False, True]
    assert allowed(plan_of(name, "none", answer=answer), name, *turns) == [True, False, False, False]
    assert allowed(plan_of(name, "required", answer=answer), name, *turns) == [False, False, False, True]
    assert allowed(form_of(name).plan(answer=answer), name, *turns) == [True, False, False, False]
    message = read(plan_of(name, answer=answer), tokens_of(rendered(name, turns[0])))
    assert (message.content, message.calls) == ('{"n": 1}', ())


QUOTES = SubstringGuide("It will rain in Oslo.", TEXT.vocabulary)
PLAIN = [name for name in tool_calls.NAMES if name != "harmony"]


@pytest.mark.parametrize("name", PLAIN)
def test_answers_that_no_graph_holds_beside_calls(name: str) -> None:
    """Quotations, and texts with goals."""
    turns = Turn("rain in Oslo"), Turn("rain on Oslo"), Turn("It will snow"), ONE
    cases: list[tuple[dict[str, Any], list[bool]]] = [
        ({"answer": QUOTES}, [True, False, False]),
        ({"answer": GoalGuide(QUOTES, ["in O"])}, [True, False, False]),
        ({"goals": (Phrase("rain"),)}, [True, True, False]),
    ]
    for options, expected in cases:
        assert allowed(plan_of(name, **options), name, *turns) == [*expected, True]
        assert allowed(plan_of(name, "none", **options), name, *turns) == [*expected, False]
        assert allowed(plan_of(name, "required", **options), name, *turns) == [False, False, False, True]
        assert allowed(form_of(name).plan(**options), name, *turns) == [*expected, False]
        message = read(plan_of(name, **options), tokens_of(rendered(name, turns[0])))
        assert (message.content, message.calls) == ("rain in Oslo", ())


@pytest.mark.parametrize("is_text", [True, False])
def test_what_was_thought_is_no_part_of_an_answer_with_goals(is_text: bool) -> None:
    form = form_of("hermes", is_text=is_text, thinks=True)
    spelt = form._spelling.parts
    calls = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    texts = ("rain", "<think>rain</think>rain", "<think>\nrain\n</think>\n\nrain", "<think>rain</think>snow", calls)
    cases: dict[tuple[tool_calls.Thinking, int | None, str], list[bool]] = {
        ("auto", None, ""): [True, True, True, False, True],
        ("on", None, ""): [False, True, True, False, False],
        ("off", None, ""): [True, False, False, False, True],
        ("auto", 3, "<think>"): [False, False, False, False, False],
    }
    random = Random(1)
    for (thinking, budget, opening), expected in cases.items():
        for options in ({"goals": (Phrase("rain"),)}, {"answer": SubstringGuide("some rain", form.vocabulary)}):
            choice = tool_calls.choice_of("auto", LISTED)
            plan = form.plan(LISTED, choice, thinking=thinking, budget=budget, **options)  # type: ignore[arg-type]
            assert plan.guide is not None
            tokens = [[token for part in spelt(text) for token in _ids(part)] for text in texts]
            assert [accepts(plan.guide, each) for each in tokens] == expected, (thinking, options)
            assert plan.opening == tuple(token for part in spelt(opening) for token in _ids(part))
            for more in (0, 5, 40):
                message = read(plan, drawn(plan.guide, random, plan.needed + more))
                assert message.calls or "rain" in (message.content or "") or "goals" not in options


def _ids(part: str | int) -> list[int]:
    return list(part.encode()) if isinstance(part, str) else [part]


@pytest.mark.parametrize("options", [{"answer": QUOTES}, {"goals": (Phrase("rain"),)}], ids=str)
def test_harmony_has_no_headers_for_such_answers(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="harmony"):
        form_of("harmony").plan(LISTED, **options)
    assert form_of("harmony").final(tokens_of("<|start|>assistant")) == tuple(tokens_of("<|channel|>final<|message|>"))


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("name", tool_calls.NAMES)
def test_random_texts_of_the_guide_are_read_as_valid_calls(name: str, is_text: bool) -> None:
    """Complete within any budget there may be, whatever the model would like to write."""
    random = Random(5)
    for choice in ("auto", "required"):
        form = form_of(name, is_text=is_text)
        plan = form.plan(LISTED, tool_calls.choice_of(choice, LISTED))
        assert plan.guide is not None
        for budget in (0, 1, 3, 20, 60):
            tokens = drawn(plan.guide, random, plan.needed + budget)
            message = read(plan, tokens, random)
            assert message == read(plan, tokens)
            assert message.calls or choice == "auto"
            for call in message.calls:
                assert call.complete
                Draft202012Validator(SCHEMAS[call.name]).validate(json.loads(call.arguments))


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "llama3", "mistral", "harmony"])
def test_laws(name: str) -> None:
    guide = form_of(name, is_text=False, thinks=name == "hermes").plan(LISTED).guide
    assert guide is not None
    laws.check(guide, texts=1, tokens=10, sample=40)


def test_thinking() -> None:
    form, turn = form_of("hermes", thinks=True), Turn("", ONE.calls, "Now?")
    plain, thought = rendered("hermes", ONE), rendered("hermes", turn)
    behind = thought.removeprefix("<think>\n")
    cases: dict[tuple[tool_calls.Thinking, str], list[bool]] = {
        ("auto", "assistant\n"): [True, True, False],
        ("on", "assistant\n"): [False, True, False],
        ("off", "assistant\n"): [True, False, False],
        ("auto", "<think>\n"): [False, False, True],
        ("on", "<think>"): [False, False, True],
        ("off", "<think>\n"): [True, False, False],
        ("auto", "<think>\n\n</think>\n\n"): [True, False, False],
    }
    for (thinking, prompt), expected in cases.items():
        plan = form.plan(
            LISTED,
            tool_calls.choice_of("required", LISTED),
            thinking=thinking,
            prompt=tokens_of(prompt),  # type: ignore[arg-type]
        )
        assert plan.guide is not None
        assert [accepts(plan.guide, tokens_of(text)) for text in (plain, thought, behind)] == expected, (
            thinking,
            prompt,
        )
        assert plan.opening == tuple(b"</think>\n\n" if (thinking, prompt) == ("off", "<think>\n") else b"")
        for text, is_read in zip((plain, thought, behind), expected, strict=True):
            if is_read:
                message = read(plan, tokens_of(text), Random(1))
                assert message.reasoning == (None if text == plain else "Now?")
                assert message.content is None
                assert [call.name for call in message.calls] == ["now"]


@pytest.mark.parametrize("name", sorted(set(tool_calls.NAMES) - {"llama3", "small"}))
@pytest.mark.parametrize("is_text", [True, False])
def test_thinking_within_a_budget(name: str, is_text: bool) -> None:
    """It is opened behind the prompt, ends in time, and a call follows."""
    model, form, random = TEXT if is_text else TOKENS[name], form_of(name, is_text=is_text, thinks=True), Random(2)
    plan = form.plan(LISTED, tool_calls.choice_of("required", LISTED), budget=5)
    assert plan.guide is not None
    assert list(plan.opening) == tokens_of(form.family.thinking[0], model)  # type: ignore[index]
    open_too = form.plan(LISTED, tool_calls.choice_of("required", LISTED), budget=5, prompt=plan.opening)
    assert (open_too.opening, open_too.needed) == ((), plan.needed)
    for budget in (0, 4, 50):
        message = read(plan, drawn(plan.guide, random, plan.needed + budget), random)
        assert len((message.reasoning or "").encode(errors="replace")) <= 5 * 3, "a token may be read as a character"
        assert message.calls
        assert all(call.complete for call in message.calls)


def test_a_budget_of_thinking_that_is_off() -> None:
    """No second header is asked for in harmony, whose messages behind thinking begin with one."""
    assert allowed(plan_of("harmony", "required", thinking="off", budget=5), "harmony", ONE) == [True]


def test_thinking_without_a_constraint() -> None:
    """Nothing is constrained without tools, and still it is read apart; with a budget it ends in time."""
    form = form_of("hermes", thinks=True)
    plan = form.plan(prompt=tokens_of("<think>\n"))
    message = read(plan, tokens_of("So.\n</think>\n\nHello."), Random(1))
    assert (message.reasoning, message.content) == ("So.", "Hello.")
    assert form_of("hermes").plan().guide is None
    assert form_of("hermes").plan().needed == 0
    within = form.plan(budget=3, prompt=tokens_of("<think>\n"))
    assert within.guide is not None
    assert not accepts(within.guide, tokens_of("long</think>Hello."))
    assert accepts(within.guide, tokens_of("so </think>Hello."))


def test_thinking_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="has no thinking in its tool-call format"):
        form_of("llama3").plan(budget=3)
    with pytest.raises(OptionError, match="has no thinking in its tool-call format"):
        form_of("hermes").plan(thinking="on")
    with pytest.raises(OptionError, match="ends after the end of thinking"):
        form_of("hermes", thinks=True).plan(thinking="on", prompt=tokens_of("<think>\n\n</think>\n\n"))
    with pytest.raises(OptionError, match="thinking='yes'"):
        form_of("hermes", thinks=True).plan(thinking="yes")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the budget of thinking=-1"):
        form_of("hermes", thinks=True).plan(budget=-1)


def test_content_does_not_begin_as_a_call() -> None:
    """Where a call is told by how it begins, what begins so is one; later in the text it is not."""
    guide = plan_of("llama3").guide
    assert guide is not None
    texts = ['{"name": "x"}', ' {"name": "x"}', '{"nam', '{"age": 3}', 'So: {"name": "x"}', "{", ""]
    assert [accepts(guide, tokens_of(text)) for text in texts] == [False, False, True, True, True, True, True]
    message = read(plan_of("llama3"), tokens_of('So: {"name": "now", "parameters": {}}'), Random(0))
    assert (message.content, message.calls) == ('So: {"name": "now", "parameters": {}}', ())


@pytest.mark.parametrize("name", ["llama3", "json", "small", "hermes"])
def test_an_answer_that_begins_as_a_call(name: str) -> None:
    """Any object may be the answer: it is a call if all of it is one, and else content."""
    plan = plan_of(name, answer=JSONGuide({"type": "object"}, TEXT.vocabulary))
    key = "parameters" if name == "llama3" else "arguments"
    texts = [
        f'{{"name": "now", "{key}": 5}}',
        f'{{"name": "now", "{key}": {{}}, "n": 1}}',
        '{"name": "now"}',
        '{"n": "<tool_call>"}',
    ]
    for text in texts:
        assert plan.guide is not None
        assert accepts(plan.guide, tokens_of(text))
        assert read(plan, tokens_of(text), Random(2)) == tool_calls.ParsedMessage(text, None, ())
    message = read(plan, tokens_of(rendered(name, ONE)), Random(2))
    assert (message.content, [call.name for call in message.calls]) == (None, ["now"])


def test_names_with_odd_characters() -> None:
    odd = ['say "hi"', "a.b:c/d", "größe", "a\\b", "<x>"]
    tools = tool_calls.tools_of([{"type": "function", "function": {"name": name}} for name in odd])
    plan = form_of("hermes").plan(tools)
    assert plan.guide is not None
    for name in odd:
        text = f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {{}}}}\n</tool_call>'
        assert accepts(plan.guide, tokens_of(text))
        assert [call.name for call in read(plan, tokens_of(text), Random(3)).calls] == [name]
    with pytest.raises(tool_calls.ToolError, match="'kimi-k2' writes names without quotes, and ':'") as caught:
        form_of("kimi-k2").plan(tools)
    assert caught.value.pointer == "tools/1/function/name"


@pytest.mark.parametrize("name", sorted(set(tool_calls.NAMES) - {"harmony"}))
def test_stop_strings(name: str) -> None:
    """They end content, behind which there is the rest of a token at most; in calls they are text."""
    plan = plan_of(name, stop=("##", "END"))
    assert plan.guide is not None
    for text, expected in (("Hello##", "Hello"), ("Hello#ENDs here", "Hello#"), ("Hello", "Hello")):
        assert accepts(plan.guide, tokens_of(text)), text
        for reader in (plan.reader(), plan.reader()):
            for token in tokens_of(text):
                reader.feed([token])
            reader.finish()
            assert reader.message.content == expected
            assert reader.message.stopped == (text != "Hello")
    assert not accepts(plan.guide, tokens_of("Hello##" + 30 * "x"))
    call = Turn("", (("get_weather", {"city": "a##END"}),))
    text = rendered(name, call)
    assert accepts(plan.guide, tokens_of(text))
    assert json.loads(read(plan, tokens_of(text)).calls[0].arguments)["city"] == "a##END"
    assert not accepts(plan_of(name, "none", stop=("##",)).guide, tokens_of("a##" + 30 * "b"))  # type: ignore[arg-type]


def test_stop_strings_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="a constraint or include"):
        plan_of("hermes", stop=("a",), answer=JSONGuide({"type": "object"}, TEXT.vocabulary))
    with pytest.raises(OptionError, match="harmony"):
        plan_of("harmony", stop=("a",))
