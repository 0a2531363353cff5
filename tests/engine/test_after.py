"""`after=`: free text within a budget of its own, then the constraint, under every constraint and search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from trellm import Beam, BudgetError, OptionError, Sample, Vocabulary, generate, models

THINK = 256
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), None, b"</t>", b">a", None], [259], [THINK])


class Words:
    """Bytes, and the special token as "<think>"."""

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def token_to_id(self, text: str) -> int | None:
        return THINK if text == "<think>" else None


def scores(ids: Sequence[int]) -> list[float]:
    """Thinks in letters, the more of them the likelier to come to its end; what comes depends on all before."""
    seed = sum((place + 1) * token for place, token in enumerate(ids)) % 1009
    found = [((token * 7919 + seed * 104729) % 1000) / 300 for token in range(VOCABULARY.size)]
    for token in range(97, 103):
        found[token] += 4
    found[THINK] = found[257] = 2.0 + 0.5 * len(ids)
    return found


MODEL = models.from_function(scores, VOCABULARY, Words())
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
MADE: dict[str, tuple[Callable[..., Any], Callable[[Any], bool]]] = {
    "regex": (lambda **given: generate.regex(MODEL, "[ab]{3}", **given), lambda value: len(value) == 3),
    "choice": (lambda **given: generate.choice(MODEL, ["yes", "no</t>"], **given), lambda v: v in ("yes", "no</t>")),
    "json": (lambda **given: generate.json(MODEL, SCHEMA, whitespace="compact", **given), lambda v: v["a"] in (1, 2)),
    "cfg": (lambda **given: generate.cfg(MODEL, 'start: "x" | "(" start ")"', **given), lambda v: "x" in v),
    "format": (lambda **given: generate.format(MODEL, bool, **given), lambda value: value in (True, False)),
    "extract": (
        lambda **given: generate.extract(MODEL, "the cat sat", **given),
        lambda v: v.text in "the cat sat",
    ),
}


def check(result: Any, marker: str, most: int, is_right: Callable[[Any], bool]) -> None:
    assert result.finish_reason == "complete"
    assert is_right(result.value)
    assert marker not in result.thought
    shown = "" if marker == "<think>" else marker
    assert result.text.startswith(result.thought + shown)
    assert result.error is None
    decode, ids = VOCABULARY.decode, result.token_ids
    if shown:
        through = next(count for count in range(len(ids) + 1) if marker.encode() in decode(ids[:count]))
        assert through <= most + len(marker)
        assert result.thought_cut or through <= most + 1
    else:
        assert ids.index(THINK) <= most
        assert result.thought_cut == (ids.index(THINK) == most)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("marker", ["</t>", "<think>"])
@pytest.mark.parametrize("most", [0, 3, 40])
def test_every_constraint(name: str, marker: str, most: int) -> None:
    make, is_right = MADE[name]
    for result in make(after=marker, thinking=most).run(["hm", "a b", "x" * 9]):
        check(result, marker, most, is_right)
        assert result.thought_cut == (most == 0) or most == 3


@pytest.mark.parametrize("search", [Sample(n=2), Beam(3, n=2)], ids=["sample", "beam"])
def test_every_search(search: Any) -> None:
    make, is_right = MADE["json"]
    for entry in make(after="<think>", thinking=12).run(["hm", "a b"], search=search, seed=3, max_tokens=40):
        for result in entry:
            check(result, "<think>", 12, is_right)


def test_alone_in_a_batch_and_as_a_stream() -> None:
    generator = MADE["regex"][0](after="</t>", thinking=9)
    together = generator.run(["hm", "a b"])
    assert [generator.run(prompt).text for prompt in ("hm", "a b")] == [result.text for result in together]
    assert generator(["hm", "a b"]) == [result.value for result in together]
    assert "".join(generator.stream("hm")) == together[0].text
    assert generate.batch([(generator, "hm"), (generate.regex(MODEL, "a"), "hm")]) == [together[0].value, "a"]


def test_the_budgets() -> None:
    """The whole text has max_tokens, which leave room for the constraint; by default the free text comes on top."""
    generator = MADE["regex"][0](after="<think>", thinking=500)
    with pytest.raises(BudgetError, match="takes 4 tokens"):
        generator("hm", max_tokens=3)
    tight = generator.run("hm", max_tokens=4)
    assert (tight.thought, len(tight.value)) == ("", 3)
    assert not tight.thought_cut, "it was max_tokens that ended it"
    never = models.from_function(lambda ids: [float(token == 97) for token in range(260)], VOCABULARY, Words())
    cut = generate.regex(never, "b*c", after="<think>", thinking=300).run("hm")
    assert (cut.thought, cut.value, cut.thought_cut) == ("a" * 300, cut.value, True)


def test_several_spans_and_samples() -> None:
    with pytest.raises(OptionError, match="after= is not supported with several distinct spans"):
        generate.extract(MODEL, "the cat sat", spans=2, after="</t>")("hm")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"after": ""}, 'after="": expected the marker'),
        ({"after": 1.5}, "after=1.5: a whole number"),
        ({"thinking": 5}, "thinking=5 needs the marker"),
        ({"after": "x", "thinking": -1}, "thinking=-1"),
        ({"after": "a\ud800"}, "after has a lone surrogate"),
    ],
)
def test_mistakes(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        generate.regex(MODEL, "a", **given)


def test_what_does_not_go_with_it() -> None:
    with pytest.raises(TypeError, match="'aftr' is not an option"):
        generate.regex(MODEL, "a", aftr="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(OptionError, match="cannot be joined with goals"):
        generate.regex(MODEL, "a+", after="</t>")("hm", include="aa")
