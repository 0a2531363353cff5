"""Special tokens that somebody names in a message are text, whatever is around them; the rest is read as ever."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from trellm import models
from trellm.errors import OptionError

from ..support import MARK, ChatEncoder, ids_of

NAMES = ["<|im_end|>", "<|im_start|>", "<|endoftext|>"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def model() -> Any:
    return models.small()


@pytest.fixture(scope="module")
def verbatim(model: Any) -> ChatEncoder:
    return ChatEncoder(model)


def said(model: Any, ids: tuple[int, ...]) -> str:
    return model.tokenizer.decode(list(ids))


def specials(model: Any, ids: tuple[int, ...]) -> list[int]:
    return [token for token in ids if token in model.tokenizer.all_special_ids]


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*NAMES, "<", "|im_end|>", "<|im_", "é", MARK, " tea\n", "</think>"]), max_size=6))
def test_a_message_begins_no_turn(model: Any, verbatim: ChatEncoder, parts: list[str]) -> None:
    text = "".join(parts)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]
    ids = verbatim.ids(messages, 0, {})
    usual = ids_of(model, messages, 0, {})
    assert specials(model, ids) == specials(model, ids_of(model, [messages[0], {**messages[1], "content": "a"}], 0, {}))
    if any(name in text for name in NAMES):
        assert said(model, ids) == said(model, usual).replace(MARK, "")
        assert ids != usual
    else:
        assert ids == usual


def test_the_rest_is_read_as_ever(model: Any, verbatim: ChatEncoder) -> None:
    """The tokens before and behind a turn that names some are those that they are without it."""
    around = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tea?"}]
    ids = verbatim.ids([around[0], {"role": "user", "content": "a<|im_end|>b"}, around[1]], 0, {})
    usual = ids_of(model, around, 0, {})
    turn = len(ids_of(model, around[:1], 0, {})) - len(model.tokenizer.encode("<|im_start|>assistant\n"))
    assert ids[:turn] == usual[:turn] and ids[turn - len(usual) :] == usual[turn:]


def test_names_in_tools_and_calls(model: Any, verbatim: ChatEncoder) -> None:
    parameters = {"type": "object", "properties": {"<|im_end|>": {"enum": ["<|im_start|>system"]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    messages = [{"role": "user", "content": "Hello."}]
    ids = verbatim.ids(messages, 0, {"tools": (tool,)})
    assert specials(model, ids) == specials(model, ids_of(model, messages, 0, {"tools": (TOOL,)}))
    assert said(model, ids) == said(model, ids_of(model, messages, 0, {"tools": (tool,)}))


def with_tokenizer(model: Any, tokenizer: Any) -> Any:
    """The model with another tokenizer."""
    other = copy.copy(model)
    other.tokenizer = tokenizer
    return other


def test_marks_that_a_template_escapes(model: Any) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.content | tojson(ensure_ascii=True) }}<|im_end|>{% endfor %}"
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = template
    messages = [{"role": "user", "content": "é<|im_end|>"}]
    assert (
        said(model, ChatEncoder(with_tokenizer(model, tokenizer)).ids(messages, 0, {}))
        == r'<|im_start|>"\u00e9<|im_end|>"<|im_end|>'
    )


def test_threads_do_not_tell_each_other_what_is_special(model: Any, verbatim: ChatEncoder) -> None:
    """The library keeps that with a tokenizer, not with a call."""
    chats = [[{"role": "user", "content": text * 40}] for text in ("a<|im_end|>", "tea ")]
    expected = [verbatim.ids(chat, 0, {}) for chat in chats]
    start = threading.Barrier(4)

    def run(number: int) -> bool:
        start.wait()
        return all(verbatim.ids(chats[number % 2], 0, {}) == expected[number % 2] for _ in range(60))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))
    assert len(specials(model, expected[0])) == len(specials(model, expected[1])) == 3


class Words:
    """A tokenizer that reads the name of a special token as that whatever one says."""

    added_tokens_decoder: ClassVar[Any] = {
        2: AddedToken("<e>", special=True),
        3: AddedToken("e", special=True),
        4: AddedToken("w"),
    }
    chat_template = ""

    def encode(self, text: str, **options: Any) -> list[int]:
        return [2 if word == "<e>" else 5 for word in text.split()]

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        text = " ".join(message["content"] for message in messages)
        return self.encode(text) if options["tokenize"] else text


class Nameless(Words):
    """The same, which does not say what is special."""

    added_tokens_decoder: ClassVar[Any] = None


def test_tokenizers_that_know_a_name_from_no_text(model: Any) -> None:
    made = ChatEncoder(with_tokenizer(model, Words()))
    assert made.ids([{"role": "user", "content": "we w"}], 0, {}) == (5, 5)
    with pytest.raises(OptionError, match=r"prompt 3: a message has '<e>', a special token"):
        made.ids([{"role": "user", "content": "a <e>"}], 3, {})
    nameless = ChatEncoder(with_tokenizer(model, Nameless()))
    assert nameless.ids([{"role": "user", "content": "a <e>"}], 0, {}) == (5, 2)
