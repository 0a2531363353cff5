"""Where thinking, calls and an answer meet: what of the blanks there is the answer's own, and what ends content."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from trellm.errors import OptionError
from trellm.guides import RegexGuide, SubstringGuide
from trellm.serve import tool_calls

from .families import TOOLS
from .models import TEXT, TOKENS, accepts, drawn, form_of, read

LISTED = tool_calls.tools_of(TOOLS)
PLAIN = [name for name in tool_calls.NAMES if name != "harmony"]
PATTERNS = (
    r"[ \n]{0,4}(x|\{\"name\": \"no)",
    r"\nab|ac",
    r"\n?\n? x\n",
    r"\s{2}b",
    r"[\n{]?\{\"name\": \"now\", \"arg.{1,3}",
)
STOPS = ("e", "name", '"', '{"name": "', "{")


def with_each(others: tuple[str, ...]) -> list[Any]:
    """Every family with one of the others, each of which is with some family; the other pairs are slow."""
    return [
        pytest.param(name, other, marks=[] if (place - number) % len(others) == 0 else pytest.mark.slow)
        for place, name in enumerate(PLAIN)
        for number, other in enumerate(others)
    ]


def tokens_of(text: str) -> list[int]:
    return TEXT.tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(("name", "pattern"), with_each(PATTERNS))
def test_what_is_no_call_is_an_answer_letter_for_letter(name: str, pattern: str) -> None:
    """Whatever the guide lets a model write, and however the stream is split."""
    random = Random(7)
    for is_text, thinks in ((True, False), (False, False), (True, True), (False, True)):
        form = form_of(name, is_text=is_text, thinks=thinks)
        plan = form.plan(LISTED, answer=RegexGuide(pattern, form.vocabulary))
        assert plan.guide is not None
        for _ in range(6):
            tokens = drawn(plan.guide, random, 200)
            message, again = read(plan, tokens), read(plan, tokens, random)
            assert message == again
            if not message.calls:
                assert re.fullmatch(pattern, message.content or ""), (tokens, message)


@pytest.mark.parametrize("name", PLAIN)
def test_line_breaks_behind_thinking_are_the_answers_where_it_asks_for_them(name: str) -> None:
    form = form_of(name, thinks=True)
    if form.family.thinking is None:
        return
    begin, end = form.family.thinking
    for pattern, behind, expected in (
        (r" x", "\n\n x", " x"),
        (r"\nab|ac", "\n\nab", "\nab"),
        (r"\nab|ac", "\nac", "ac"),
        (r"\nab|ac", "\nab", "\nab"),
        (r"\n{3}x", "\n\n\nx", "\n\n\nx"),
        (r"\n*x", "\n\n\nx", "\nx"),
        (r"\n?", "\n", ""),
        (r"\n", "\n", "\n"),
        (r"", "", ""),
    ):
        for tools in ((), LISTED):
            plan = form.plan(tools, answer=RegexGuide(pattern, form.vocabulary))
            tokens = tokens_of(f"{begin}hm{end}{behind}")
            assert accepts(plan.guide, tokens), (pattern, behind)  # type: ignore[arg-type]
            message = read(plan, tokens)
            assert (message.content or "", message.reasoning, message.calls) == (expected, "hm", ())


def test_a_quotation_that_begins_with_a_space() -> None:
    quotes = SubstringGuide("It will rain.", TEXT.vocabulary, boundary="character")
    plan = form_of("qwen3-coder", thinks=True).plan(LISTED, answer=quotes)
    for text, thought in ((" will", None), ("<think>hm</think>\n\n will", "hm")):
        assert accepts(plan.guide, tokens_of(text))  # type: ignore[arg-type]
        message = read(plan, tokens_of(text))
        assert (message.content, message.reasoning) == (" will", thought)


@pytest.mark.parametrize(("name", "stop"), with_each(STOPS))
def test_stop_strings_within_what_begins_a_call(name: str, stop: str) -> None:
    """A text that stops there could be the beginning of a call as well, and would be read as one."""
    random = Random(5)
    for model in (TEXT, TOKENS[name]):
        form = form_of(name, is_text=model is TEXT)
        try:
            plan = form.plan(LISTED, stop=(stop, "zz"))
        except OptionError:  # of a stop string within the marker that begins calls
            assert stop in form.family.trigger
            continue
        guide: Any = plan.guide
        for opening in ("", '{"nam', '{"name": "', '[{"name": "n', "<tool", "se"):
            if not accepts(guide, tokens_of(opening)) and stop not in opening:
                continue
            for _ in range(2):
                state = guide.start
                for token in tokens_of(opening):
                    state = guide.advance(state, token)
                if state < 0:
                    break
                tokens = tokens_of(opening) + drawn(From(guide, state), random, 40)  # type: ignore[arg-type]
                message = read(plan, tokens)
                assert stop not in (message.content or ""), (tokens, message)
                assert all(call.complete for call in message.calls)


class From:
    """A guide from one of its states on."""

    def __init__(self, guide: Any, start: int) -> None:
        self._guide = guide
        self.start = start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guide, name)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("stop", ["a", '"'])
def test_stop_strings_where_a_call_is_required(name: str, stop: str) -> None:
    """They cut no call, and no beginning of one, however it comes in pieces."""
    required = tool_calls.ToolChoice("required", frozenset(tool.name for tool in LISTED))
    plan = form_of(name, is_text=True).plan(LISTED, required, stop=(stop,))
    guide: Any = plan.guide
    for seed in range(2):
        tokens = drawn(guide, Random(seed), guide.distance(guide.start) + 40)
        message = read(plan, tokens)
        assert not message.stopped and message.calls and not message.content
