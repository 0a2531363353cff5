"""`frame=`: text before and behind an answer that is no part of it, under every constraint, search and model."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from trellm import Beam, Engine, Exact, OptionError, Sample, Vocabulary, generate, models

TEMPLATE = 257
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), None, None, b'"', b'b"', b' "', b's "a', b"s a"], [256], [TEMPLATE]
)
CHAT = [{"role": "user", "content": "Who sat?"}]
DOCUMENT = "the cat sat on the mat"


class Chats:
    """Bytes, and chats as <template>, the last message, <template>."""

    chat_template = "there is one"

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        text = messages[-1]["content"]
        return [TEMPLATE, *text.encode(), TEMPLATE] if options.get("tokenize") else f"<{text}>"


def answering(text: str, *, bare: bool = False, heard: list[list[int]] | None = None) -> Any:
    """A model that says a text behind any chat and then wants to end, going on from how much of it stands there."""
    wanted = text.encode()

    def logits(ids: Sequence[int]) -> Any:
        if heard is not None:
            heard.append([*ids])
        values = np.cos(np.arange(263.0) * (1 + len(ids)))
        said = VOCABULARY.decode(ids)
        begun = next(n for n in range(min(len(wanted), len(said)), -1, -1) if said.endswith(wanted[:n]))
        values[wanted[begun] if begun < len(wanted) else 256] += 8
        return values

    model = models.from_function(logits, VOCABULARY, Chats())
    if bare:
        model.answers_bare = True
    return model


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
FRAME = ('It is "', '"')
MADE: dict[str, tuple[Callable[..., Any], str, Any]] = {
    "regex": (lambda model, **given: generate.regex(model, "[a-z]+", **given), "cat", "cat"),
    "choice": (lambda model, **given: generate.choice(model, {"yes": 1, "no": 0}, **given), "no", 0),
    "json": (lambda model, **given: generate.json(model, SCHEMA, whitespace="compact", **given), '{"a":2}', {"a": 2}),
    "cfg": (lambda model, **given: generate.cfg(model, 'start: "x" | "(" start ")"', **given), "((x))", "((x))"),
    "format": (lambda model, **given: generate.format(model, int, **given), "12", 12),
    "extract": (lambda model, **given: generate.extract(model, DOCUMENT, **given), "cat sat", "cat sat"),
    "text": (lambda model, **given: generate.text(model, **given), "nobody", "nobody"),
}


@pytest.mark.parametrize("prompt", [CHAT, "Who sat?", [119, 104, 111]], ids=["chat", "text", "ids"])
@pytest.mark.parametrize("name", MADE)
def test_every_constraint(name: str, prompt: Any) -> None:
    make, said, value = MADE[name]
    heard: list[list[int]] = []
    model = answering(f'It is "{said}". And', heard=heard)
    result = make(model, frame=FRAME).run(prompt)
    assert result.text == said
    assert getattr(result.value, "text", result.value) == value
    assert result.finish_reason == ("stop" if name == "text" else "complete")
    written = VOCABULARY.decode(result.token_ids)[result.overlap :]
    assert written == f'{said}"'.encode() if name != "text" else written.startswith(said.encode())
    assert any(b'It is "' in VOCABULARY.decode(ids) for ids in heard), "the model has read what stands before"


@pytest.mark.parametrize("name", MADE)
def test_streams_do_not_have_the_mark(name: str) -> None:
    make, said, _ = MADE[name]
    generator = make(answering(f'It is "{said}"'), frame=FRAME)
    assert "".join(generator.stream(CHAT)) == said
    pieces = list(generator.stream([CHAT, "Who?"]))
    for number in (0, 1):
        assert "".join(piece.text for piece in pieces if piece.prompt == number) == said
    tokens = [token for piece in pieces if piece.prompt == 0 for token in piece.token_ids]
    assert tokens == list(generator.run(CHAT).token_ids)


@pytest.mark.parametrize("search", [Sample(n=3), Beam(3), Exact(n=2)], ids=["sample", "beam", "exact"])
def test_every_search(search: Any) -> None:
    generator = generate.regex(answering('It is "cat"'), "[a-c]{1,3}t?", frame=FRAME)
    results = generator.run(CHAT, search=search, seed=1, max_tokens=12)
    for result in results if isinstance(results, list) else [results]:
        assert result.finish_reason == "complete"
        assert '"' not in result.text
        assert VOCABULARY.decode(result.token_ids).endswith(b'"')


def test_a_mark_of_several_letters_and_one_side_alone() -> None:
    assert generate.regex(answering("Well: **cat** or"), "[a-z ]+", frame=("Well: **", "**"))(CHAT) == "cat"
    assert generate.regex(answering("Well: cat"), "[a-z]{3}", frame=("Well: ", ""))(CHAT) == "cat"
    assert generate.regex(answering("cat.dog"), "[a-z]+", frame=("", "."))(CHAT) == "cat"


@pytest.mark.parametrize("pattern", ["[a-z*]+", "cat(\\*\\*sat)?", "(?s:.*)"])
def test_an_answer_that_the_mark_would_not_end(pattern: str) -> None:
    with pytest.raises(OptionError, match="an answer may contain the closing mark"):
        generate.regex(answering("cat"), pattern, frame=("", "**"))
    with pytest.raises(OptionError, match="an answer may contain"):
        generate.choice(answering("cat"), ["cat", "cat** sat"], frame=("", "**"))


def test_the_mark_within_answers_that_it_would_end() -> None:
    model = answering('It is "a"b"')
    assert generate.choice(model, ['a"b', "b"], frame=FRAME)(CHAT) == 'a"b'


def test_the_end_of_what_stands_before_is_healed_and_the_chat_is_not() -> None:
    """A token that begins in the text before the answer may be read; one that begins in the chat may not."""
    heard: list[list[int]] = []
    model = answering("x", heard=heard)
    result = generate.regex(model, "a[a-z]", frame=("s ", '"')).run(CHAT, logit_bias={262: 20})
    assert result.text[0] == "a"
    assert result.token_ids[0] == 262
    assert result.overlap == 2
    behind = generate.regex(model, "a[a-z]", frame=('s "', '"')).run(CHAT, logit_bias={261: 20})
    assert behind.token_ids[0] == ord("a"), "behind a mark, which only other marks could join"
    heard.clear()
    generate.regex(model, "a[a-z]", frame=('"', '"')).run([{"role": "user", "content": "as "}], logit_bias={262: 20})
    assert all(ids[:5] == [TEMPLATE, *b"as ", TEMPLATE] for ids in heard)


def test_after_free_text() -> None:
    model = answering('thinking</t>It is "cat"')
    generator = generate.regex(model, "[a-z]+", after="</t>", thinking=30, frame=FRAME)
    result = generator.run(CHAT)
    assert (result.value, result.thought) == ("cat", "thinking")
    assert result.text == 'thinking</t>It is "cat"'


def test_several_spans_and_samples() -> None:
    model = answering('The answer is "cat"')
    generator = generate.extract(model, DOCUMENT, spans=3)
    assert "cat" in [span.text for span in generator(CHAT)]
    texts = generate.extract(model, DOCUMENT)(CHAT, search=Sample(n=3), seed=0)
    assert len({span.text for span in texts}) == 3


@pytest.mark.parametrize(
    ("document", "mark"), [(DOCUMENT, '"'), ('the "cat" sat', "**"), ('the "cat" **sat**', "`"), ('"cat" ** `sat`', "")]
)
def test_quotations_of_chats_stand_in_marks_that_the_document_has_not(document: str, mark: str) -> None:
    heard: list[list[int]] = []
    result = generate.extract(answering("cat", heard=heard), document).run(CHAT)
    assert result.value.text == result.text
    assert result.text in document
    assert (f"The answer is {mark}".encode() in VOCABULARY.decode(heard[-1])) == bool(mark)


def test_no_frame_where_none_is_wanted() -> None:
    heard: list[list[int]] = []
    for model, prompt, frame in [
        (answering("cat", heard=heard), CHAT, None),
        (answering("cat", heard=heard, bare=True), CHAT, "auto"),
        (answering("cat", heard=heard), "Who sat?", "auto"),
        (answering("cat", heard=heard), [119, 104, 111], "auto"),
    ]:
        heard.clear()
        generate.extract(model, DOCUMENT, frame=frame)(prompt)
        assert not any(b"The answer" in VOCABULARY.decode(ids) for ids in heard)


@pytest.mark.parametrize(
    ("schema", "said", "stands"),
    [
        (SCHEMA, '{"a":2}', True),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, "[true]", True),
        (list[bool] | dict[str, bool], "[false]", True),
        ({"type": "string", "maxLength": 3}, '"ab"', False),
        ({"enum": ["x", {"a": 1}]}, '{"a":1}', False),
        (bool, "true", False),
    ],
)
def test_objects_and_arrays_of_chats_stand_in_a_block_of_code(schema: Any, said: str, stands: bool) -> None:
    """The model reads its beginning; what is written is the answer alone."""
    heard: list[list[int]] = []
    generator = generate.json(answering(said, heard=heard), schema, whitespace="compact")
    for include in ((), said[1:3]):
        result = generator.run(CHAT, include=include)
        assert result.text == said == VOCABULARY.decode(result.token_ids).decode()
        assert (b"```json\n" in VOCABULARY.decode(heard[-1])) == stands
    assert "".join(generator.stream(CHAT)) == said
    assert generator.run(CHAT, fields=True).text == said
    heard.clear()
    for prompt, options in ((CHAT, {"continue_final_message": True}), ("Who sat?", {})):
        assert generator.run(prompt, chat_template_kwargs=options).text == said
    assert not any(b"`" in VOCABULARY.decode(ids) for ids in heard)


def test_a_sentence_is_not_begun_where_the_text_goes_on_with_a_message() -> None:
    chat = [*CHAT, {"role": "assistant", "content": "It was the "}]
    result = generate.choice(answering("cat"), ["cat", "dog"]).run(
        chat, chat_template_kwargs={"continue_final_message": True}
    )
    assert (result.text, result.thought) == ("cat", None)


def test_the_refusal_stands_in_marks_too() -> None:
    generator = generate.extract(answering('The answer is "nobody"'), DOCUMENT, none_text="nobody")
    assert generator(CHAT) is None


def test_what_must_be_included() -> None:
    result = generate.regex(answering('It is "'), "[a-z]{2,9}", frame=FRAME).run(CHAT, include=["dog"])
    assert "dog" in result.text
    assert '"' not in result.text


def test_log_probabilities_and_diagnostics_are_of_all_that_was_written() -> None:
    result = generate.regex(answering('It is "cat"'), "[a-z]+", frame=FRAME).run(CHAT, logprobs=True, diagnostics=True)
    assert result.text == "cat"
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.token_ids)
    assert result.diagnostics is not None


def test_a_batch_and_an_engine() -> None:
    model = answering('It is "cat"')
    framed, bare = generate.regex(model, "[a-z]+", frame=FRAME), generate.regex(model, "[a-z]{3}")
    assert generate.batch([(framed, CHAT), (bare, 'It is "')]) == ["cat", "cat"]
    assert Engine(model).submit(framed, CHAT).result().text == "cat"


def test_it_is_sent(tmp_path: Any) -> None:
    folder = models.small()
    generator = generate.regex(folder, "[a-z]+", frame=("Answer: (", ")"))
    again = pickle.loads(pickle.dumps(generator))
    assert again.frame == generator.frame
    chat = [{"role": "user", "content": "Name a colour."}]
    assert again(chat, max_tokens=30) == generator(chat, max_tokens=30)
    quoting = generate.extract(folder, DOCUMENT, frame=("It is (", ")"))
    assert pickle.loads(pickle.dumps(quoting))(chat) == quoting(chat)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("x", "two texts"),
        (("a",), "two texts"),
        (("a", "b", "c"), "two texts"),
        (("", ""), "or both"),
        ((1, "b"), "the text before the answer"),
        (("a", None), "the closing mark"),
        (("a", "b" * 65), "from 1 to 64 bytes"),
    ],
)
def test_mistakes(frame: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        generate.regex(answering("a"), "a+", frame=frame)
    with pytest.raises(TypeError, match="frame= are options"):
        generate.regex(answering("a"), "a+", framed=("a", "b"))  # type: ignore[call-arg]
