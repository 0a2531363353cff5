"""How texts end: EOS, stop strings and ids, budget, context; and what is refused before they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import (
    Beam,
    BudgetError,
    Generator,
    Greedy,
    OptionError,
    Sample,
    Vocabulary,
    VocabularyError,
    generate,
    models,
)

from ..support import Options, RunOptions, StopStrings

BYTES = Vocabulary([*(bytes([value]) for value in range(256)), None], eos_ids=(256,))


def saying(text: str | bytes, **options: Any) -> Any:
    """A model that says `text` after a prompt of one byte, byte by byte, then EOS."""
    script = [*(text.encode() if isinstance(text, str) else text), 256]

    def logits(ids: Any) -> list[float]:
        wanted = script[min(len(ids) - 1, len(script) - 1)]
        return [float(token == wanted) for token in range(BYTES.size)]

    return models.from_function(logits, BYTES, **options)


def test_eos_completes_and_is_not_part_of_the_text() -> None:
    result = generate.text(saying("hello")).run("x")
    assert (result.text, result.value, result.finish_reason) == ("hello", "hello", "complete")
    assert result.token_ids == tuple(b"hello")


@pytest.mark.parametrize("tokens", [1, 4, 5, 6])
def test_the_budget_ends_free_text(tokens: int) -> None:
    result = generate.text(saying("hello")).run("x", max_tokens=tokens)
    assert result.text == "hello"[:tokens]
    assert result.finish_reason == ("complete" if tokens > 5 else "length")


LISTED = {
    "type": "object",
    "properties": {"people": {"type": "array", "items": {"type": "string"}}, "place": {"type": "string"}},
    "required": ["people", "place"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("search", [Greedy(), Sample(temperature=0.01), Beam(2)])
@pytest.mark.parametrize("heal", [True, False])
def test_what_stands_behind_an_endless_list_has_its_share_of_the_default_budget(search: Any, heal: bool) -> None:
    def logits(ids: Any) -> list[float]:
        text = bytes(ids[1:])
        at = len(text) - text.index(b"]") - 1 if b"]" in text else -1
        head, body, tail = b'{"people": [', b'"Ada", ', b', "place": "Minsk"}'
        if at >= 0:
            wanted = tail[at] if at < len(tail) else 256
        else:
            wanted = head[len(text)] if len(text) < len(head) else body[(len(text) - len(head)) % len(body)]
        return [20.0 * (token == wanted) for token in range(BYTES.size)]

    writer = generate.json(models.from_function(logits, BYTES), LISTED)
    assert writer.guide is not None
    needed = writer.guide.distance(writer.guide.start)
    result = writer.run("x", search=search, seed=1, heal=heal)
    assert result.value["place"] == "Minsk" and len(result.value["people"]) > 20
    assert len(result.token_ids) <= needed + 256
    # A budget that is asked for is there for texts of as many tokens.
    exact = writer.run("x", max_tokens=needed + 256, search=search, seed=1, heal=heal)
    assert len(exact.token_ids) == needed + 256 and exact.value["place"] == ""


@pytest.mark.parametrize(
    ("stop", "text"),
    [("lo", "hel"), (["world", " "], "hello"), ("hello world", ""), ("d", "hello worl"), (["llo", "hel"], ""),
     ("zebra", "hello world")],
)  # fmt: skip
def test_a_stop_string_ends_the_text_before_it(stop: Any, text: str) -> None:
    result = generate.text(saying("hello world")).run("x", stop=stop)
    assert result.text == text
    assert result.finish_reason == ("complete" if text == "hello world" else "stop")
    assert "".join(generate.text(saying("hello world")).stream("x", stop=stop)) == text


def test_a_stop_string_may_begin_and_end_inside_tokens() -> None:
    vocabulary = Vocabulary([b"h", b"el", b"lo w", b"orld", None], eos_ids=(4,))
    model = models.from_function(lambda ids: [float(token == len(ids) - 1) for token in range(5)], vocabulary)
    result = generate.text(model).run("h", stop="low")
    assert (result.text, result.finish_reason) == ("hello world", "complete")
    result = generate.text(model).run("h", stop="lo wo")
    assert (result.text, result.finish_reason, result.token_ids) == ("hel", "stop", (0, 1, 2, 3))


def test_a_stop_id_ends_the_text() -> None:
    result = generate.text(saying("hello world")).run("x", stop_ids=[ord("o")])
    assert (result.text, result.finish_reason, result.token_ids) == ("hell", "stop", tuple(b"hell"))


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.text("abc", max_size=12), st.data())
@settings(max_examples=150, derandomize=True)
def test_stop_strings_are_found_at_once_and_never_shown(strings: list[str], text: str, data: st.DataObject) -> None:
    stop = StopStrings(strings)
    expected = min((at for string in strings if (at := text.find(string)) >= 0), default=-1)
    so_far, found = bytearray(), -1
    rest = text.encode()
    while rest and found < 0:
        size = data.draw(st.integers(1, len(rest)))
        known = len(so_far)
        so_far += rest[:size]
        rest = rest[size:]
        found = stop.find(so_far, known)
        if expected >= 0 and found < 0:
            assert stop.safe(so_far) <= expected, "what is shown is never taken back"
        assert found < 0 or all(string.encode() not in so_far[:found] for string in strings)
    assert (found < 0) == (expected < 0)


def test_streams_are_whole_characters() -> None:
    text = "né 日本 🎉!"
    pieces = list(generate.text(saying(text)).stream("x"))
    assert "".join(pieces) == text
    assert len(pieces) == len(text)
    cut = text.encode()[:-3]
    assert "".join(generate.text(saying(cut)).stream("x")) == cut.decode(errors="replace")
    assert generate.text(saying(cut))("x") == cut.decode(errors="replace")
    with pytest.raises(OptionError, match="n=1"):
        generate.text(saying(text)).stream("x", search=Sample(n=2))


def test_stop_is_refused_under_a_constraint(table_guide: Any) -> None:
    generator = Generator(saying("a"), table_guide(BYTES, [{97: 0}], {0}))
    for options in ({"stop": "a"}, {"stop_ids": [97]}):
        with pytest.raises(OptionError, match="cut off a constrained output"):
            generator("x", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_tokens": 0}, "max_tokens=0"), ({"max_tokens": -3}, "max_tokens"), ({"max_tokens": 2.5}, "max_tokens"),
     ({"search": Greedy}, "search"), ({"search": "greedy"}, "search"), ({"batch_size": 0}, "batch_size"),
     ({"stop": [1]}, "stop"), ({"stop": ""}, "stop"), ({"stop_ids": [999]}, "stop_ids"), ({"seed": [1, 2]}, "seed"),
     ({"seed": "x"}, "seed")],
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    def never(ids: Any) -> Any:
        raise AssertionError("nothing may be generated")

    generator = generate.text(models.from_function(never, BYTES))
    with pytest.raises(OptionError, match=message):
        generator("x", **options)
    if "batch_size" not in options:
        with pytest.raises(OptionError, match=message):
            list(generator.stream("x", **options))


def test_unknown_options_are_refused() -> None:
    generator = generate.text(saying("a"))
    with pytest.raises(OptionError, match=r"temperature=1\.0: there is no such option; .*search=Sample\(temperature="):
        generator("x", temperature=1.0)  # pyright: ignore
    with pytest.raises(OptionError, match="did you mean max_tokens"):
        generate.batch([(generator, "x")], max_token=3)  # pyright: ignore
    with pytest.raises(OptionError, match="nonsense=1: there is no such option; expected one of max_tokens"):
        generator("x", nonsense=1)  # pyright: ignore
    with pytest.raises(OptionError, match="logprobs"):
        generator("x", logprobs=True)  # pyright: ignore
    with pytest.raises(OptionError, match="batch_size"):
        generator.stream("x", batch_size=2)  # pyright: ignore


def test_every_option_is_declared_once() -> None:
    assert list(RunOptions.__annotations__) == [field.name for field in fields(Options)]


def test_prompts() -> None:
    generator = generate.text(saying("abc"))
    assert generator(["x", "y"]) == ["abc", "abc"]
    assert generator([]) == []
    with pytest.raises(OptionError, match="prompt 1 must be a text, not 5"):
        generator(["x", 5])  # pyright: ignore
    small = Vocabulary([b"a", None], eos_ids=(1,))
    with pytest.raises(VocabularyError, match="at byte 1"):
        generate.text(models.from_function(lambda ids: [1, 0], small))("ab")


def test_an_empty_prompt_begins_with_bos(decoder: Callable[..., Any]) -> None:
    model = decoder("llama")
    assert model.tokenizer.encode("") == []
    generator = generate.text(model)
    assert generator.run("", max_tokens=5).token_ids == generator.run("<bos>", max_tokens=5).token_ids


def test_the_context_bounds_prompt_and_output(table_guide: Any) -> None:
    model = saying("abcdefghij", context=6)
    generator = generate.text(model)
    assert generator("x") == "abcde", "by default as much as fits"
    assert generator("x", max_tokens=5) == "abcde"
    with pytest.raises(OptionError, match="max_tokens can be up to 5"):
        generator("x", max_tokens=6)
    with pytest.raises(OptionError, match="prompt 1 takes 6 tokens"):
        generator(["x", "xxxxxx"])
    guide = table_guide(BYTES, [{97: 1}, {97: 2}, {97: 3}, {}], {3})
    assert Generator(model, guide)("xxx") == "aaa"
    with pytest.raises(BudgetError, match="has room for 2"):
        Generator(model, guide)("xxxx")


def test_the_default_budget_exceeds_the_shortest_output(table_guide: Any) -> None:
    count = 300
    guide = table_guide(BYTES, [*({97: state + 1, 98: state + 1} for state in range(count)), {}], {count})
    assert len(Generator(saying("a"), guide)("x")) == count


def test_a_guide_for_another_vocabulary_is_refused(table_guide: Any) -> None:
    other = Vocabulary([b"a", None], eos_ids=(1,))
    with pytest.raises(OptionError, match="another vocabulary"):
        Generator(saying("a"), table_guide(other, [{}], {0}))
    twin = Vocabulary(BYTES.tokens, BYTES.eos_ids)
    assert Generator(saying("a"), table_guide(twin, [{97: 0}], {0}))("x") == "a"


@pytest.mark.parametrize("search", [Greedy(), Sample(), Beam(2)])
def test_a_goal_of_which_stop_ids_are_parts_is_met_first(search: Any) -> None:
    vocabulary = Vocabulary([b"x", b"a", b"b", b"c", None], eos_ids=[4])
    model = models.from_function(lambda ids: [0.0] * 5, vocabulary)
    found: Any = generate.text(model).run([0], search=search, max_tokens=3, include="cc", stop_ids=[3], seed=1)
    for each in found if isinstance(found, list) else [found]:
        assert "cc" in each.text
        assert not each.unmet
