"""The forms against XGrammar's structural tags of models: texts and mutants of them, accepted by both or by neither.

Where the two differ on purpose, a difference must be one of these:
- XGrammar's JSON may have any white space between its tokens, ours as much as json.dumps writes.
- XGrammar lets content follow calls, and stand between them; the templates write none there.
- Behind thinking, ours takes up to two line breaks, since templates differ; XGrammar takes a fixed number.
- In harmony, ours takes what the model says before a call, in the channel for that, and an end token need not be text.
- In harmony, XGrammar lets texts have markers in them; ours refuses those, as gpt-oss has them as tokens.
- MiniMax: XGrammar wants an empty thought where there is no thinking, and a line break before calls that must come.
- XGrammar refuses markers of calls in content also where they begin none; ours reads them as content.
- Qwen3-Coder: XGrammar's calls begin with "<tool_call>\\n<function=", and "<tool_call>" alone is content; an empty line
  may come before "</function>", and no line break before a value.
- Llama: XGrammar's calls may stand anywhere; ours are told by how a text begins, so that JSON in content is content.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import Any

import pytest
from trellm.serve import tool_calls

from .families import ALONE, SINGLE, THOUGHTLESS, TOOLS, Turn, rendered
from .models import TEXT, accepts, form_of, read

MODELS = {
    "hermes": "qwen_3",
    "qwen3-coder": "qwen_3_coder",
    "llama3": "llama",
    "deepseek-r1": "deepseek_r1",
    "deepseek-v3.1": "deepseek_v3_1",
    "deepseek-v3.2": "deepseek_v3_2",
    "kimi-k2": "kimi",
    "glm-4.7": "glm_4_7",
    "harmony": "harmony",
    "minimax-m2": "minimax",
}
LISTED = tool_calls.tools_of(TOOLS)
VALUES: dict[str, list[Any]] = {
    "city": ["Oslo", "", 'a "b"', "世", "x\ny"],
    "days": [0, -3, 12],
    "exact": [True, False],
    "note": [None, "hm", "12"],
    "parts": [[], ["a"], ["a]", "{"]],
}
PIECES = [
    "{",
    "}",
    '"',
    "\n",
    " ",
    "a",
    ",",
    ":",
    "]",
    "<tool_call>",
    "</tool_call>",
    "</think>",
    "<think>",
    "null",
    "\\",
]
_PREAMBLE = re.compile(r"<\|channel\|>commentary<\|message\|>.*?<\|end\|><\|start\|>assistant", re.DOTALL)
EMPTY_THOUGHT = "\n</think>\n\n\n\n"
CHANGES = [('"city"', '"town"'), ("get_weather", "get"), ('": ', '":'), (", ", ","), ("null", "None"), ("\n", "")]


class Theirs:
    """XGrammar's grammar of a model's calls."""

    def __init__(self, peer: Any, name: str, choice: str, thinks: bool, parallel: bool) -> None:
        self._peer, compiler = peer
        reasoning = "auto" if thinks else "disabled"
        options = {"tools": TOOLS, "tool_choice": choice, "reasoning": reasoning, "parallel_tool_calls": parallel}
        self._grammar = compiler.compile_structural_tag(self._peer.get_model_structural_tag(MODELS[name], **options))

    def accepts(self, text: str) -> bool:
        matcher = self._peer.GrammarMatcher(self._grammar)
        return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(256)


def turn_of(random: Random, name: str, choice: str, thinks: bool) -> Turn:
    """A random turn that a template of the family can write."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for _ in range(1 if name in SINGLE else random.choice([1, 1, 2])):
        values = {key: random.choice(VALUES[key]) for key in VALUES if key == "city" or random.random() < 0.4}
        calls.append((random.choice(["get_weather", "get_weather_of"]), values))
    content = "" if choice == "required" or name in ALONE else random.choice(["", "Hi. <b>"])
    return Turn(content, tuple(calls), random.choice(["", "Hm."]) if thinks and name not in THOUGHTLESS else "")


def mutant(random: Random, text: str) -> str:
    """A text like that, with something missing, doubled, in between or another."""
    at, kind = random.randrange(len(text) + 1), random.randrange(4)
    if kind == 0:
        return text[:at] + text[at + random.choice([1, 1, 2, 5, 12]) :]
    if kind == 1:
        return text[:at] + random.choice(PIECES) + text[at:]
    if kind == 2:
        return text[:at] + text[max(0, at - random.choice([1, 3, 10, 30])) :]
    return text.replace(*random.choice(CHANGES), 1)


def is_explained_as_ours(name: str, text: str, theirs: Theirs, deltas: list[tool_calls.Delta]) -> bool:
    """Whether a text that only we accept is as XGrammar has it but for the differences above, or no call at all."""
    bridged = _PREAMBLE.sub("", text)
    if name == "harmony" and not bridged.endswith((">", "<|call|>")):
        bridged += "<|return|>"
    ways = [bridged, *(re.sub(r"</think>\n*", f"</think>{blank}", bridged, count=1) for blank in ("", "\n\n"))]
    if name == "minimax-m2":
        ways += [before + text for before in ("\n", EMPTY_THOUGHT, EMPTY_THOUGHT + "\n")]
        ways += [re.sub(r"</think>\n*", "</think>\n\n\n", text)]
    if any(map(theirs.accepts, ways)):
        return True
    has_calls = any(isinstance(delta, tool_calls.CallDelta) for delta in deltas)
    content = "".join(delta.text for delta in deltas if isinstance(delta, tool_calls.ContentDelta))
    if name == "llama3":
        return (not has_calls and '{"name": ' in content[1:]) or "think>" in content
    return name in ("kimi-k2", "glm-4.7") and re.search(r"<\|?/?(tool_call|arg_)", content) is not None


def is_explained_as_theirs(name: str, text: str, plan: tool_calls.AnswerPlan, deltas: list[tool_calls.Delta]) -> bool:
    """Whether a text that only XGrammar accepts has content behind a call or is, but for white space, one of ours."""
    called = [number for number, delta in enumerate(deltas) if isinstance(delta, tool_calls.CallDelta)]
    if called and any(isinstance(delta, tool_calls.ContentDelta) for delta in deltas[called[0] :]):
        return True
    if name == "qwen3-coder" and re.search(r"<tool_call>(?!\n<function=)|\n\n+</function>|<parameter=\w+>(?!\n)", text):
        return True
    if name == "harmony" and any(part.count("<|message|>") > 1 for part in text.split("<|end|>")):
        return True
    message = read(plan, TEXT.tokenizer.encode(text, add_special_tokens=False))
    calls = tuple((call.name, json.loads(call.arguments)) for call in message.calls)
    ours = rendered(name, Turn(message.content or "", calls, message.reasoning or ""))
    is_accepted = plan.guide is not None and accepts(plan.guide, TEXT.tokenizer.encode(ours, add_special_tokens=False))
    return is_accepted and re.sub(r"\s", "", text) == re.sub(r"\s", "", ours)


def compared(peer: Any, name: str, count: int, seed: int) -> Counter[tuple[bool, bool]]:
    """How many texts ours and theirs accept; every difference must be explained."""
    seen: Counter[tuple[bool, bool]] = Counter()
    for place, (choice, thinks) in enumerate(
        [("auto", True), ("auto", False), ("required", True), ("required", False)]
    ):
        random, parallel = Random(seed + place), place % 2 == 0
        theirs = Theirs(peer, name, choice, thinks, parallel)
        form = form_of(name, thinks=name not in THOUGHTLESS)
        off = not thinks and form.thinks
        plan = form.plan(
            LISTED, tool_calls.choice_of(choice, LISTED), parallel=parallel, thinking="off" if off else "auto"
        )
        assert plan.guide is not None
        for number in range(count):
            turn = turn_of(random, name, choice, thinks)
            text = rendered(name, turn) if number % 4 == 0 else mutant(random, rendered(name, turn))
            mine, other = (
                accepts(plan.guide, TEXT.tokenizer.encode(text, add_special_tokens=False)),
                theirs.accepts(text),
            )
            seen[mine, other] += 1
            if mine == other:
                continue
            reader = plan.reader()
            deltas = [*reader.feed_bytes(text.encode()), *reader.finish()]
            if mine:
                assert is_explained_as_ours(name, text, theirs, deltas), (choice, thinks, text)
            else:
                assert is_explained_as_theirs(name, text, plan, deltas), (choice, thinks, text)
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_against_structural_tags(name: str, peer: Any) -> None:
    seen = compared(peer, name, 24, 1)
    assert seen[True, True] > 12
    assert seen[False, False] > 12
