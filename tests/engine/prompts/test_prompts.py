"""Prompts as texts, token ids and chats: which is which, what the model reads of each, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from tokenizers.processors import TemplateProcessing
from trellm import Engine, OptionError, Vocabulary, generate, models

from ..support import prompts_of

TEMPLATE = (
    "{{ bos_token }}{% for t in tools or [] %}T:{{ t['function']['name'] if t is mapping else t }}\n{% endfor %}"
    "{% for d in documents or [] %}D:{{ d['text'] }}\n{% endfor %}"
    "{% for m in messages %}{% if m['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('Only user and assistant may speak, not ' ~ m['role']) }}{% endif %}"
    "{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
HELLO = [{"role": "user", "content": "hi the"}]
REPLY = [*HELLO, {"role": "assistant", "content": "on"}, {"role": "user", "content": "in"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


@pytest.fixture(scope="module")
def chatty(tokenizer: Any) -> Any:
    """The tokenizer of other tests, which puts BOS before texts and has a chat template that begins with it."""
    found = copy.deepcopy(tokenizer)
    found.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    found.chat_template = TEMPLATE
    return found


class Listening:
    """A model that remembers what it read, and says what is likely after a newline."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary | None = None) -> None:
        self.heard: list[tuple[int, ...]] = []
        vocabulary = Vocabulary.from_tokenizer(tokenizer) if vocabulary is None else vocabulary
        self.model = models.from_function(self.logits, vocabulary, tokenizer)

    def logits(self, ids: Sequence[int]) -> list[float]:
        self.heard.append(tuple(ids))
        return [-abs(float(token - 80)) for token in range(self.model.vocabulary.size)]

    def reads(self, prompt: Any, **options: Any) -> list[int]:
        """The prompt as the model reads it before the first token."""
        self.heard.clear()
        generate.text(self.model)(prompt, max_tokens=1, **options)
        return list(self.heard[0])


@pytest.fixture
def listening(chatty: Any) -> Listening:
    return Listening(chatty)


def templated(tokenizer: Any, chat: Any, **extras: Any) -> list[int]:
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False, **extras)


@pytest.mark.parametrize("chat", [HELLO, REPLY])
def test_a_chat_is_what_its_template_says(chat: Any, listening: Listening, chatty: Any) -> None:
    read = listening.reads(chat)
    assert read == templated(chatty, chat)
    assert read.count(0) == 1
    assert chatty.decode(read).endswith("\nassistant:")


def test_tools_and_documents_reach_the_template(listening: Listening, chatty: Any) -> None:
    documents = [{"title": "a", "text": "12"}]
    assert listening.reads(HELLO, tools=[TOOL]) == templated(chatty, HELLO, tools=[TOOL])
    assert listening.reads(HELLO, documents=documents) == templated(chatty, HELLO, documents=documents)
    both = listening.reads(HELLO, tools=[TOOL], documents=documents)
    assert "T:add\nD:12\n" in chatty.decode(both)
    assert listening.reads(HELLO, tools=[], documents=None) == templated(chatty, HELLO)


def test_a_function_is_a_tool(listening: Listening, chatty: Any) -> None:
    def add(left: int) -> int:
        """Add.

        Args:
            left: a number
        """
        return left

    assert "T:add\n" in chatty.decode(listening.reads(HELLO, tools=[add]))
    with pytest.raises(OptionError, match="refuses this chat: DocstringParsingException"):
        listening.reads(HELLO, tools=[lambda: None])


def test_a_rendered_template_has_one_beginning(listening: Listening, chatty: Any) -> None:
    rendered = chatty.apply_chat_template(HELLO, add_generation_prompt=True, tokenize=False)
    assert chatty.encode(rendered)[:2] == [0, 0], "the tokenizer puts a second one before it"
    assert listening.reads(rendered, heal=False) == templated(chatty, HELLO)


@pytest.mark.parametrize(("text", "begins"), [("hi", 1), ("<bos>hi", 1), ("<bos><bos>hi", 2), ("hi<bos>", 1)])
def test_a_text_has_the_beginnings_that_it_writes_or_one(text: str, begins: int, listening: Listening) -> None:
    read = listening.reads(text, heal=False)
    assert read[: begins + 1].count(0) == begins
    assert read.count(0) == begins + text.endswith("<bos>")


def test_a_tokenizer_without_beginnings_loses_nothing(tokenizer: Any) -> None:
    assert Listening(tokenizer).reads("<bos>hi", heal=False) == tokenizer.encode("<bos>hi")


def test_token_ids_are_read_as_they_are(chatty: Any) -> None:
    """Neither BOS nor healing: a text that ends so is cut back."""
    listening = Listening(chatty)
    ids = chatty.encode("on th", add_special_tokens=False)
    assert listening.reads(ids) == ids
    assert listening.reads("on th") != [0, *ids]
    assert listening.reads(np.array(ids)) == listening.reads(torch.tensor(ids)) == listening.reads(iter(ids)) == ids


@pytest.mark.parametrize(
    ("given", "single", "items"),
    [
        ("a", True, ["a"]),
        ([], False, []),
        (["a"], False, ["a"]),
        ([1, 2], True, [(1, 2)]),
        ([[1, 2]], False, [(1, 2)]),
        ([[1], "a", HELLO], False, [(1,), "a", HELLO]),
        (HELLO, True, [HELLO]),
        (tuple(HELLO), True, [HELLO]),
        ([HELLO], False, [HELLO]),
        ([HELLO, REPLY], False, [HELLO, REPLY]),
        (np.array([[1, 2], [3, 4]]), False, [(1, 2), (3, 4)]),
    ],
)
def test_one_prompt_is_told_from_several(given: Any, single: bool, items: list[Any]) -> None:
    found = prompts_of(given)
    assert found.is_single == single
    assert found.items == items


class Answer(BaseModel):
    """A message as clients of chat APIs return them."""

    role: str
    content: str | None
    refusal: str | None = None
    annotations: list[str] | None = None


def test_messages_of_pydantic_models_are_those_that_they_dump() -> None:
    answer = Answer(role="assistant", content="Hi.")
    assert prompts_of([*HELLO, answer]).items == [[*HELLO, {"role": "assistant", "content": "Hi."}]]
    assert prompts_of([[answer]]) == ([[{"role": "assistant", "content": "Hi."}]], False)
    with pytest.raises(OptionError, match="the prompt is one message"):
        prompts_of(answer)
    with pytest.raises(OptionError, match="message 0 has no content"):
        prompts_of([Answer(role="assistant", content=None)])


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (HELLO[0], "the prompt is one message; a chat is a list"),
        (["a", HELLO[0]], "prompt 1 is one message"),
        ([*HELLO, "a"], "the prompt, message 1 is 'a'"),
        ([[]], "prompt 0 is an empty list"),
        ([["a"]], "not a list with 'a' as item 0"),
        ([1, "a"], "not a list with 'a' as item 1"),
        ([1, True], "not a list with True as item 1"),
        ([1, -1], "token 1=-1: a whole number of at least 0"),
        ([120], "prompt 0, token 0 is 120; the model has tokens 0 to 107"),
        ([{"content": "a"}], "message 0 has no role"),
        ([{"role": "user"}], "message 0 has no content"),
        ([{"role": "user", "content": None}], "message 0 has no content"),
        ([{"role": 5, "content": "a"}], "message 0, the role must be a text, not 5"),
        ([{"role": "user", "content": 5}], "the content must be a text, not 5"),
        ([{"role": "user", "content": "a\ud800"}], "message 0 has a lone surrogate"),
        ([{"role": "user", "content": "a", "x": {"y": ["\udc80"]}}], "message 0 has a lone surrogate"),
        ([{"role": "user", "content": [{"type": "image", "url": "a"}]}], "models read texts here"),
        ([{"role": "user", "content": [{"type": "text"}]}], "the text must be a text, not None"),
        ([{"role": "user", "content": "a", 5: 6}], "a key must be a text, not 5"),
        ([{"role": "system", "content": "a"}], "refuses this chat: Only user and assistant may speak, not system$"),
    ],
)
def test_mistakes_are_named(prompt: Any, said: str, listening: Listening) -> None:
    with pytest.raises(OptionError, match=said):
        listening.reads(prompt)
    assert not listening.heard


@pytest.mark.parametrize("token", [108, -1, -70])
def test_tokens_that_the_model_has_not(token: int, listening: Listening) -> None:
    listening = Listening(SimpleNamespace(encode=lambda text: [5, token]), listening.model.vocabulary)
    with pytest.raises(OptionError, match=f"the tokenizer made token {token} of prompt 0"):
        listening.reads("hi", heal=False)
    assert not listening.heard


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": TOOL}, "tools=.* a list of dicts or functions"),
        ({"tools": ["add"]}, "tools: item 0 is 'add'"),
        ({"documents": [len]}, "documents: item 0 is .*; documents is a list of dicts$"),
        ({"documents": [{"text": "\ud800"}]}, "documents, item 0 has a lone surrogate"),
    ],
)
def test_mistakes_in_what_chats_come_with(options: dict[str, Any], said: str, listening: Listening) -> None:
    with pytest.raises(OptionError, match=said):
        listening.reads(HELLO, **options)


def test_what_has_no_end_is_refused(listening: Listening) -> None:
    wide: Any = ["hi"]
    for _ in range(60):
        wide = [wide, wide]
    round_about: dict[str, Any] = {**TOOL}
    round_about["itself"] = [round_about]
    for given, said in ((round_about, "contains itself"), ({**TOOL, "wide": wide}, "has more than 1,048,576 values")):
        with pytest.raises(OptionError, match=f"tools, item 0 {said}"):
            listening.reads(HELLO, tools=[given])
        with pytest.raises(OptionError, match=f"the prompt, message 0 {said}"):
            listening.reads([{**HELLO[0], "more": given}])
    twice = {"type": "string"}
    several = {**TOOL, "one": twice, "other": [twice, twice]}
    assert listening.reads(HELLO, tools=[several]) == listening.reads(HELLO, tools=[TOOL])


def test_a_template_that_knows_no_tools(chatty: Any) -> None:
    plain = copy.deepcopy(chatty)
    plain.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    listening = Listening(plain)
    for options in ({"tools": [TOOL]}, {"documents": [{"text": "a"}]}):
        with pytest.raises(OptionError, match="the chat template of the model's tokenizer ignores them"):
            listening.reads(HELLO, **options)


def test_tools_are_for_chats(listening: Listening) -> None:
    with pytest.raises(OptionError, match=r"tools= needs a chat.*; prompt 1 is not a list of messages"):
        listening.reads([HELLO, "a"], tools=[TOOL])


def test_a_tokenizer_without_a_template(tokenizer: Any) -> None:
    for model in (Listening(tokenizer).model, models.ziplm("abc")):
        with pytest.raises(OptionError, match="prompt 0 is a chat, but the model's tokenizer has no chat template"):
            generate.text(model)(HELLO)


def test_every_way_to_run_takes_chats(listening: Listening, chatty: Any) -> None:
    generator = generate.regex(listening.model, "[a-z]{3}")
    value = generator(HELLO)
    asked: list[Callable[[], Any]] = [
        lambda: generator([HELLO])[0],
        lambda: generator([templated(chatty, HELLO)])[0],
        lambda: generator.run(HELLO).text,
        lambda: "".join(generator.stream(HELLO)),
        lambda: "".join(piece.text for piece in generator.stream([HELLO])),
        lambda: next(iter(generator.iter([HELLO])))[1].text,
        lambda: generate.batch([(generator, HELLO)])[0],
        lambda: Engine.of(listening.model).submit(generator, HELLO).result().text,
    ]
    assert [ask() for ask in asked] == [value] * len(asked)


def test_quotations_under_a_chat(listening: Listening) -> None:
    span = generate.extract(listening.model, "the 12 on the 23")(HELLO)
    assert "the 12 on the 23"[span.start : span.end] == span.text
    several = generate.extract(listening.model, "the 12 on the 23", spans=2, max_chars=3)(HELLO)
    assert len({each.start for each in several}) == 2
